package run

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/split"
)

// A client never sees the node that its graph does not have.
func TestHide(t *testing.T) {
	t.Parallel()
	v := &division{plan: split.Plan{Node: "comfyhub_part"}}
	for text, want := range map[string]string{
		`{"type": "execution_cached", "data": {"nodes": ["5", "comfyhub_part", "6"], "prompt_id": "a"}}`:                             `{"type": "execution_cached", "data": {"nodes": ["5", "6"], "prompt_id": "a"}}`,
		`{"type": "progress_state", "data": {"nodes": {"comfyhub_part": {"value": 1.0}, "3": {"value": 2.50}}}}`:                     `{"type": "progress_state", "data": {"nodes": {"3": {"value": 2.50}}}}`,
		`{"status": {"messages": [["execution_error", {"executed": ["comfyhub_part"], "exception_message": "not comfyhub_part"}]]}}`: `{"status": {"messages": [["execution_error", {"executed": [], "exception_message": "not comfyhub_part"}]]}}`,
		`{"data":  {"nodes": ["5"]}}`: `{"data":  {"nodes": ["5"]}}`, // byte by byte
		`comfyhub_part`:               `comfyhub_part`,
	} {
		require.Equal(t, want, string(v.hide([]byte(text))))
		require.Equal(t, text, string((*division)(nil).hide([]byte(text))))
	}
	for node, planted := range map[string]bool{"comfyhub_part": true, "3": false, "": false} {
		require.Equal(t, planted, v.planted(comfyui.Message{Type: comfyui.TypeExecuting, Node: node}))
		require.False(t, (*division)(nil).planted(comfyui.Message{Node: node}))
	}
}

func TestRefusesSplit(t *testing.T) {
	t.Parallel()
	for extra, refuses := range map[string]bool{
		`{"comfyhub": {"split": false}}`: true, `{"comfyhub": {"split": true}}`: false, `{"comfyhub": {"split": "no"}}`: false,
		`{"comfyhub": {}}`: false, `{"comfyhub": []}`: false, `{"split": false}`: false, `[]`: false, `{`: false, ``: false,
	} {
		require.Equal(t, refuses, refusesSplit([]byte(extra)), extra)
	}
}

// An older hub cannot read what a part needs, and leaves it to others.
func TestPartNeeds(t *testing.T) {
	t.Parallel()
	whole := catalog.Requirements{Classes: []string{"KSampler", "VAEDecode"}}
	part, err := partNeeds(whole.Encode())
	require.NoError(t, err)
	require.Equal(t, catalog.Requirements{Classes: []string{"KSampler", "LatentFromBatch", "VAEDecode"}, Part: true}, part)
	again, err := catalog.DecodeRequirements(part.Encode())
	require.NoError(t, err)
	require.Equal(t, part, again)
	require.Contains(t, string(part.Encode()), `"v": 3`)
	require.NotEqual(t, whole.Signature(), part.Signature())
	_, err = partNeeds([]byte("{"))
	require.Error(t, err)
}
