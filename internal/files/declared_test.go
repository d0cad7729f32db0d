package files

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
)

// The others learn from a file's record, or from a list of arguments, which other keys there are.
func TestWhoDeclaresKeys(t *testing.T) {
	t.Parallel()
	var names []string
	for _, s := range []*redis.Script{
		adoptScript, allotScript, bondScript, doomScript, emptyScript, holdScript, leadScript, markScript, noteScript, putScript,
		removeScript, replaceScript, reserveScript, restoreScript, seenScript, spareScript, takeBackScript, takenScript, useScript,
	} {
		if s.DeclaresKeys() {
			names = append(names, s.Name())
		}
	}
	require.Equal(t, []string{"files/bond", "files/lead", "files/mark", "files/note", "files/seen", "files/spare", "files/taken"}, names)
}
