package conversation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
)

// A favourite belongs to whoever pressed the star; of several pictures it is one.
func TestFavourites(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	id := r.pictured("5", "-9")
	r.tap("6", "-9", request.VerbStar+"0", id)
	_, edits := r.sent()
	require.Len(t, edits, 1)
	require.Equal(t, []platform.Button{{Label: "1", Data: "f1:" + id}, {Label: "2", Data: "f2:" + id}}, edits[0].Buttons[0])
	r.tap("6", "-9", request.VerbStar+"2", id)
	r.tap("6", "-9", request.VerbStar+"9", id)
	stars, err := r.store.People.Stars(r.ctx, "telegram:6", "fox")
	require.NoError(t, err)
	require.Len(t, stars, 1)
	require.Equal(t, id+"/1", stars[0].ID())
	require.Equal(t, "pic", stars[0].Message)
	require.Equal(t, "-9", stars[0].Chat)
	stars, err = r.store.People.Stars(r.ctx, "telegram:5", "")
	require.NoError(t, err)
	require.Empty(t, stars)
	r.tap("6", "-9", request.VerbStar+"2", id)
	stars, err = r.store.People.Stars(r.ctx, "telegram:6", "")
	require.NoError(t, err)
	require.Empty(t, stars)
}
