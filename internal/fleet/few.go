package fleet

import (
	"fmt"
	"strings"
)

// maxFew bounds the names in a text for people.
const maxFew = 5

// Few joins some names, and says how many more there are.
func Few(names []string) string {
	if len(names) <= maxFew {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxFew], ", ") + fmt.Sprintf(" and %d more", len(names)-maxFew)
}
