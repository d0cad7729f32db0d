package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/schedule"
	"github.com/comfyhub/comfyhub/internal/split"
)

// The outcome of a run that its instance has finished depends on who wanted it to stop, and on what
// was missed.
func TestJudge(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	inBubble(t, func(t *testing.T) {
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
			r := &run{screen: screen{cached: c.cached}, mail: newMailbox()}
			preparation{r}.takeBody(c.body)
			only, notSent := collecting{r}.onlyBySocket(c.entry)
			require.Equal(t, []string{c.only, c.notSent}, []string{only, notSent}, c.name)
		}
	})
}

// Outputs that could not be named are owed whatever the end is. Outputs whose messages were missed
// are owed only if the run ended well.
func TestOwesOutputs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
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
	})
}

// How long a run may be silent depends on how long such runs took, once enough is known about them.
func TestHangAfter(t *testing.T) {
	type row struct {
		warm, cold     []time.Duration // the runs so far
		loads, adopted bool            // this run
		want           time.Duration
	}
	inBubbles(t, map[string]row{
		"nothing is known":           {want: 30 * time.Minute},
		"short runs":                 {warm: times(5, 2*time.Second), want: 5 * time.Minute},
		"one of them longer":         {warm: append(times(4, 2*time.Second), 30*time.Second), want: 10 * time.Minute},
		"too few":                    {warm: times(4, 2*time.Second), want: 30 * time.Minute},
		"long runs":                  {warm: times(5, time.Hour), want: 3 * time.Hour},
		"one long run":               {warm: times(1, time.Hour), want: 3 * time.Hour},
		"loading was never measured": {warm: times(9, 2*time.Second), loads: true, want: 30 * time.Minute},
		"loading was measured":       {warm: times(1, 2*time.Second), cold: times(5, 20*time.Second), loads: true, want: 400 * time.Second},
		"it may have to load":        {warm: times(9, 2*time.Second), adopted: true, want: 30 * time.Minute},
	}, func(t *testing.T, c row) {
		b := newDispatching(t, 1, func(b *dispatching, _ *Config) { b.settings.StallTimeout = 5 * time.Minute })
		shape := shapeOf(t, b, endless)
		s, ok := schedule.DecodeStructure(shape)
		require.True(t, ok)
		pair := schedule.Pair{Structure: s.Key, Kind: s.Kind, GPU: b.reports.Gpu(b.instances[0].name)}
		for _, ran := range c.warm {
			b.durations.add(pair, schedule.Sample{Work: s.Work, Ran: ran})
		}
		for _, ran := range c.cold {
			b.durations.add(pair, schedule.Sample{Work: s.Work, Ran: ran, Cold: true})
		}
		b.connects(1)
		r := b.runner.newRun(b.Instances.Get(b.instances[0].name), job.Job{Key: "k", Shape: shape})
		if r.cold = c.loads; !c.adopted {
			r.mark = 1
		}
		require.Equal(t, c.want, looking{r}.hangAfter())
	})
}

func times(n int, each time.Duration) (list []time.Duration) {
	for range n {
		list = append(list, each)
	}
	return list
}

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
