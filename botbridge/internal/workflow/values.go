package workflow

import (
	"fmt"
	"strconv"
)

// Value returns what a run with settled args has for a size, the steps, the strength or
// the model, also where that is the workflow's own; "" if it has none.
func (c *Command) Value(r Role, a Args) string {
	slots, a := c.slots[r], c.styled(a)
	if len(slots) == 0 {
		return ""
	}
	own := plainValue(c.graph.literal(slots[0].Node, slots[0].Input))
	switch {
	case r == Size && a.Width > 0:
		return fmt.Sprintf("%dx%d", a.Width, a.Height)
	case r == Size && own != "":
		return own + "x" + plainValue(c.graph.literal(slots[1].Node, slots[1].Input))
	case r == Steps && a.Steps > 0:
		return strconv.Itoa(a.Steps)
	case r == Strength && a.Strength > 0:
		return strconv.FormatFloat(a.Strength, 'g', -1, 64)
	case r == Model && a.Model != "":
		return a.Model
	}
	return own
}
