/* What can be asked with one press, in the chat and in the race. */

const CODE = `\`\`\`python
def area(width, height):
    """Return the area of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("the sides of a rectangle cannot be negative")
    return width * height


def perimeter(width, height):
    """Return the length of the border of a rectangle."""
    if width < 0 or height < 0:
        raise ValueError("the sides of a rectangle cannot be negative")
    return 2 * (width + height)
\`\`\``;
const EXAMPLES = {
  edit: {
    prompt: "Rename the function `perimeter` to `border_length`. Return the whole file and nothing else.\n\n" + CODE,
    prediction: CODE,
  },
  write: {
    prompt: "Write a Python class `Stack` with the methods push, pop, peek and is_empty. Give each method a docstring.",
    prediction: "",
  },
  chat: { prompt: "Why is the sky blue? Explain it to a child in a few sentences.", prediction: "" },
};
