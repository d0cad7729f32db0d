package dispatch

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
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
		r := &run{screen: screen{cached: c.cached}, mail: newMailbox()}
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
		shape := shapeOf(b, endless)
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

// described returns what an instance with some node classes can run.
func described(nodes ...string) *catalog.Info {
	body := `{"Common":{"input":{"required":{}}}`
	for _, node := range nodes {
		body += fmt.Sprintf(`,%q:{"input":{"required":{}}}`, node)
	}
	return must(catalog.Parse([]byte(body + "}")))
}

func needing(nodes ...string) []byte { return catalog.Requirements{Classes: nodes}.Encode() }

// Remembered answers are what an instance would say, even after its abilities have changed.
func TestJudgements(t *testing.T) {
	t.Parallel()
	classes := map[string][]byte{
		"common": needing("Common"), "video": needing("Common", "Video"), "none": needing("Nowhere"), "newer": []byte("{"),
	}
	plain, video := described(), described("Video")
	var js judgements
	for range 2 {
		idle := []schedule.Idle{{Name: "a"}, {Name: "b"}, {Name: "c"}}
		wanted := js.able(idle, []*catalog.Info{plain, video, described()}, classes)
		require.ElementsMatch(t, []string{"none", "newer"}, wanted.But)
		require.Equal(t, map[string]bool{"common": true}, idle[0].Classes)
		require.Equal(t, map[string]bool{"common": true, "video": true}, idle[1].Classes)
		require.Equal(t, map[string]bool{"common": true}, idle[2].Classes)
		require.Equal(t, 6, js.count, "once for each pair")
	}
	idle := []schedule.Idle{{Name: "a"}}
	require.ElementsMatch(t, []string{"video", "none", "newer"}, js.able(idle, []*catalog.Info{plain}, classes).But)
	require.ElementsMatch(t, []string{"video", "newer"}, js.able(idle, []*catalog.Info{described("Nowhere")}, classes).But)

	left := js.none([]*catalog.Info{plain, nil, video}, classes)
	require.Len(t, left, 2)
	require.Contains(t, left, "none")
	require.Contains(t, left, "newer")
	require.Len(t, classes, 4)
	require.Len(t, js.none(nil, classes), 4)
}

func TestJudgementsAreBounded(t *testing.T) {
	t.Parallel()
	var js judgements
	info := described()
	for n := range maxJudgements + 10 {
		js.keep(info.Profile(), fmt.Sprint(n), true)
	}
	require.Len(t, js.known[info.Profile()], 10)
}

// BenchmarkAble judges a thousand classes for 500 idle instances of 20 profiles.
func BenchmarkAble(b *testing.B) {
	classes := map[string][]byte{}
	for n := range 1000 {
		classes[fmt.Sprint("class", n)] = needing("Common", fmt.Sprint("Node", n%20))
	}
	idle, infos := make([]schedule.Idle, 500), make([]*catalog.Info, 500)
	for n := range infos {
		infos[n] = described(fmt.Sprint("Node", n%20))
	}
	b.Run("remembered", func(b *testing.B) {
		var js judgements
		for b.Loop() {
			js.able(idle, infos, classes)
		}
	})
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			for _, encoded := range classes {
				needs := must(catalog.DecodeRequirements(encoded))
				for _, info := range infos {
					info.Satisfies(needs)
				}
			}
		}
	})
}

// A hub meets the waiting classes when it looks for jobs, however many there are, and finds what
// its instances can run behind everything that they cannot.
func TestLookMeetsClasses(t *testing.T) {
	t.Parallel()
	db := redistest.Embedded(t)
	q := must(queue.New(db, queue.Options{}))
	d := New(Config{Queue: q, Settings: func() Settings { return Settings{} }, Logger: slog.New(slog.DiscardHandler)})
	post := func(class string, requires []byte) {
		must(q.Enqueue(t.Context(), queue.Submission{
			Key: uuid.NewString(), ID: uuid.NewString(), Requester: job.Requester{Tenant: "t", Caller: "c", Client: "c"},
			Class: class, BodyHash: class, Body: job.Body{Prompt: []byte("{}"), Extra: []byte("{}"), Requires: requires},
		}))
	}
	look := func() (found []string, wanted queue.Wanted) {
		idle := []schedule.Idle{{Name: "a", Refused: map[string]bool{}}}
		w, l, err := d.requirements.look(t.Context(), idle, []*catalog.Info{described()}, 0)
		require.NoError(t, err)
		for _, j := range w.Jobs {
			require.True(t, idle[0].Classes[j.Class])
			found = append(found, j.Class)
		}
		return found, l.wanted
	}
	const others = 300
	for n := range others {
		post(fmt.Sprint("other", n), needing("Nowhere", fmt.Sprint(n)))
	}
	post("common", needing("Common"))
	found, wanted := look()
	require.Equal(t, []string{"common"}, found)
	require.Len(t, wanted.But, others)

	post("late", needing("Nowhere"))
	post("later", needing("Common", "Common"))
	found, wanted = look()
	require.Equal(t, []string{"common"}, found, "a look is for one instance, so one job")
	require.Len(t, wanted.But, others, "nobody has come upon the others")

	w := must(d.requirements.window(t.Context(), []schedule.Idle{{Name: "a"}}, []*catalog.Info{described()}, &wanted, 1, 4))
	require.Len(t, w.Jobs, 1)
	require.Equal(t, "later", w.Jobs[0].Class)
	require.Len(t, wanted.But, others+1)

	another, err := queue.New(db, queue.Options{}) // q would remember what the class needs
	require.NoError(t, err)
	q = another
	post("lost", needing("Common"))
	require.NoError(t, db.Client().Del(t.Context(), db.Key("q", "class", "lost")).Err())
	w = must(d.requirements.window(t.Context(), []schedule.Idle{{Name: "a"}}, []*catalog.Info{described()}, &wanted, 0, 5))
	require.Len(t, w.Jobs, 2, "what a job needs that nobody knows is not guessed")
}

// A job that is not given to an idle instance that could run it is reported as stuck until it runs.
func TestStuckJobsAreSeen(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 1)
		b.reaches(b.submit(picture), job.Done)
		b.Dispatcher.Close()
		b.Dispatcher = New(b.config) // its loop does not run yet
		b.loops.Go(func() { b.links.Follow(b.ctx) })
		b.loops.Go(func() { b.Watchdog.watch(b.ctx) })
		key := b.submit(picture)
		eventually(t, func() bool { return b.Watchdog.Stuck() == 1 }, deadline, 10*time.Millisecond)
		require.Contains(t, b.logged(), "jobs are waiting although an idle instance")
		b.loops.Go(func() { b.loop(b.ctx) })
		b.reaches(key, job.Done)
		eventually(t, func() bool { return b.Watchdog.Stuck() == 0 }, deadline, 10*time.Millisecond)
	})
}

// However many jobs an instance does not take now, the job behind them runs.
func TestJobBehindManyThatRest(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		var resting []string
		for range 130 {
			resting = append(resting, b.submit(picture))
			b.rests.here.Note(resting[len(resting)-1], time.Hour, false)
		}
		key := b.submit(picture)
		b.add(newScripted(t))
		b.reaches(key, job.Done)
		for _, key := range resting {
			require.Zero(t, b.Job(key).Fence, "it was not claimed")
		}
	})
}

// A job that cannot be claimed does not hold up the others.
func TestJobThatCannotBeClaimed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := newDispatching(t, 0)
		broken := b.submit(picture)
		b.record(broken, "kills", "none") // its record cannot be read
		odd := b.submit(picture)
		b.record(odd, "not_before", "0x") // the script fails
		key := b.submit(picture)
		b.add(newScripted(t))
		b.reaches(key, job.Done)
	})
}
