package run

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/testing/beside"
)

// The outcome of a run that its instance has finished depends on who wanted it to stop, and on what
// was missed.
func TestJudge(t *testing.T) {
	beside.Bubble(t, func(t *testing.T) {
		silent, late := stop{cause: hung, at: time.Now()}, stop{cause: overtime, at: time.Now()}
		interrupted := record{state: job.Cancelled, interrupted: true}
		unsaved := record{state: job.Done, socketOnly: "9"}
		for _, c := range []struct {
			name string
			in   state
			rec  record
			want resultKind
		}{
			{"well", state{}, record{state: job.Done}, jobEnded},
			{"failed", state{}, record{state: job.Failed}, jobEnded},
			{"interrupted by somebody", state{}, interrupted, jobEnded},
			{"interrupted for its client", state{wish: cancelled}, interrupted, jobEnded},
			{"interrupted because it hung", state{stop: silent}, interrupted, lost},
			{"hung and cancelled", state{stop: silent, wish: cancelled}, interrupted, jobEnded},
			{"hung and withdrawn", state{stop: silent, wish: withdrawn}, interrupted, jobEnded},
			{"ended before the interrupt", state{stop: silent}, record{state: job.Done}, jobEnded},
			{"interrupted because of its time", state{stop: late}, interrupted, timedOut},
			{"done in time after all", state{stop: late}, record{state: job.Done}, jobEnded},
			{"nothing missed", state{}, unsaved, jobEnded},
			{"a result missed", state{missed: missed{messages: true}}, unsaved, excused},
			{"only named late", state{missed: missed{outputs: true}}, unsaved, jobEnded},
			{"messages missed, all saved", state{missed: missed{messages: true}}, record{state: job.Done}, jobEnded},
			{"failed, and a result missed", state{missed: missed{messages: true}}, record{state: job.Failed, socketOnly: "9"}, jobEnded},
			{"a result was cached from the start", state{}, record{state: job.Done, cachedOnly: "9"}, jobEnded},
			{"a lost result was cached, so that it was not sent again", state{resends: true}, record{state: job.Done, cachedOnly: "9"}, excused},
			{"a lost result was sent again", state{resends: true}, unsaved, jobEnded},
		} {
			v, reason := c.in.judge(c.rec)
			require.Equal(t, c.want, v, c.name)
			require.Equal(t, v == lost || v == excused, reason != "", "%s: what was lost says why", c.name)
		}
	})
}

// Which results went only over the socket is read from what was asked for, or else from the
// instance's record.
func TestResultsOfTheSocketOnly(t *testing.T) {
	t.Parallel()
	graph := []byte(`{"1": {"class_type": "ETN_SendImageWebSocket"}, "2": {"class_type": "SaveImage"}, "3": {"class_type": "SaveImageWebsocket"}}`)
	for _, c := range []struct {
		name          string
		body          job.Body
		cached        []string
		entry         comfyui.Entry
		only, notSent string
	}{
		{"none", job.Body{Prompt: graph, Outputs: []string{"2"}}, []string{"2"}, comfyui.Entry{}, "", ""},
		{"ComfyUI's own node", job.Body{Prompt: graph, Outputs: []string{"2", "3"}}, []string{"2"}, comfyui.Entry{}, "3", ""},
		{"the node of Krita's plugin, cached", job.Body{Prompt: graph, Outputs: []string{"3", "1"}}, []string{"1"}, comfyui.Entry{}, "3", "1"},
		{"the body cannot be read", job.Body{}, nil, comfyui.Entry{Graph: graph, Wanted: []string{"1"}}, "1", ""},
		{"accepted by a hub that knew no classes", job.Body{Prompt: graph}, []string{"3"}, comfyui.Entry{}, "1", "3"},
	} {
		r := &Run{screen: screen{cached: c.cached}, mail: newMailbox()}
		preparation{r}.takeBody(c.body)
		only, notSent := collecting{r}.onlyBySocket(c.entry)
		require.Equal(t, []string{c.only, c.notSent}, []string{only, notSent}, c.name)
	}
}

// Outputs that could not be named are owed whatever the end is. Outputs whose messages were missed
// are owed only if the run ended well.
func TestOwesOutputs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		missed missed
		end    job.State
		want   bool
	}{
		{missed{}, job.Done, false},
		{missed{messages: true}, job.Done, true},
		{missed{messages: true}, job.Failed, false},
		{missed{outputs: true}, job.Done, true},
		{missed{outputs: true}, job.Cancelled, true},
	} {
		require.Equal(t, c.want, state{missed: c.missed}.owesOutputs(c.end), "%+v %s", c.missed, c.end)
	}
}
