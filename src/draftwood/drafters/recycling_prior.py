import numpy as np
_c = [0.002,0.006,0.02,0.05,0.1,0.22,0.42,0.68,0.93]
_s = [.005,.02,.045,.08,.13,.2,.3,.4,.5,.6,.7,.79,.87,.925,.965,.99]
PRIOR = np.array([min(.95, _c[b]*(.45,.7,1)[s]) for s in range(3) for f in range(3) for r in range(8) for b in range(9)]+_s, dtype=np.float32)
