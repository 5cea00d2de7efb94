"""Checks that the arrays of a suffix automaton agree with its text."""

from tests.drafters.kernels import helper

from draftwood.drafters.suffix import kernel

find_slot = helper(kernel.find_slot)


def check_integrity(automaton):
    """States, edges and text agree; time grows with the square of the text."""
    n, clones, used, length, _ = automaton._head.tolist()
    states, edges, text = automaton._states, automaton._edges, automaton.text

    def size_of(state):
        return int(state if state >= 0 else states[state, kernel.SIZE])

    assert (text >= 0).all(), "a negative token"
    assert states[n, kernel.TOKEN] == -1, "the text does not end where the header says"
    assert used == (edges[:, kernel.LABEL] >= 0).sum(), "the header miscounts the edges"
    assert size_of(states[n, kernel.LINK]) == length, "the match is not the suffix link of the whole text"
    counted = 0
    for state in range(-clones, n + 1):
        link, last, edge, _ = states[state].tolist()
        size, shorter = size_of(state), size_of(link)
        string = text[last + 1 - size : last + 1]
        if state:
            link_last = int(states[link, kernel.LAST])
            assert shorter < size <= last + 1 <= len(text), (
                f"state {state}: wrong sizes or a place outside the text"
            )
            is_suffix = not shorter or (string[-shorter:] == text[link_last + 1 - shorter : link_last + 1]).all()
            assert is_suffix, f"state {state}: its link is no suffix of it"
            assert state < 0 or (string == text[:size]).all(), f"state {state}: its prefix did not end at {last}"
        while edge >= 0:
            owner, label, target, following = edges[edge].tolist()
            ends = int(states[target, kernel.LAST])
            assert owner == state, f"state {state}: an edge of another state"
            assert find_slot(edges, state, label) == edge, f"state {state}: an edge cannot be found again"
            assert text[ends] == label, f"state {state}: an edge leads to another token"
            continues = (text[ends - size : ends] == string).all() and size_of(target) > size
            assert continues, f"state {state}: an edge leads to a string that does not continue it"
            counted, edge = counted + 1, following
    assert used == counted, "some edges are in no state's list"
