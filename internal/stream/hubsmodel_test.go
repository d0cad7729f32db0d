package stream

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// TestHubsAtRandom runs, loses and restarts jobs of one client at random hubs, while its socket
// moves among them. Each socket is shown complete sequences, one after the other, and nothing is
// shown again once it was received. If messages are lost, duplicated or late, or a socket moves before
// its receipts have arrived, something may be shown twice, on two sockets; if hubs are cut off for
// a while, a run may begin again. COMFYHUB_SEED changes the random choices.
func TestHubsAtRandom(t *testing.T) {
	t.Parallel()
	seed := seedOf(t)
	for name, c := range map[string]struct{ messages, hubs bool }{
		"calm": {}, "messages are lost": {messages: true}, "hubs are cut off": {messages: true, hubs: true},
	} {
		for i := range uint64(6) {
			t.Run(fmt.Sprint(name, i), func(t *testing.T) {
				twoHubs(t, Options{KeepAlive: time.Hour, ReplayWindow: time.Hour}, func(t *testing.T, x *exchange, a, b *rig) {
					m := &hubsModel{
						t: t, rand: rand.New(rand.NewPCG(seed, i)), x: x, messages: c.messages, cuts: c.hubs,
						hubs: []*rig{a, b, x.rig(t, "c", Options{KeepAlive: time.Hour, ReplayWindow: time.Hour})}, got: map[string]int{},
					}
					m.play()
				})
			})
		}
	}
}

// hubsModel simulates one client at three hubs.
type hubsModel struct {
	t    *testing.T
	rand *rand.Rand
	x    *exchange
	hubs []*rig
	// messages are lost, duplicated and reordered; hubs are cut off.
	messages, cuts bool

	jobs    []*hubsJob
	running []*hubsJob
	sockets []*peer
	got     map[string]int // how often each prompt was shown completely
}

type hubsJob struct {
	prompt string
	fence  int64
	run    *Run
	kept   []string // what the current run has sent and must arrive
	lost   bool     // at least once
}

func (m *hubsModel) play() {
	if m.messages {
		// Messages have their own random source: hubs send them concurrently with
		// the model.
		messages, late := rand.New(rand.NewPCG(m.rand.Uint64(), 0)), map[string][][]byte{}
		m.x.post = func(to string, text []byte) (now [][]byte) {
			switch messages.IntN(8) {
			case 0:
			case 1:
				now = append(now, text, text)
			case 2:
				late[to] = append(late[to], text)
			default:
				now = append(append(now, text), late[to]...)
				late[to] = nil
			}
			return now
		}
	}
	m.open()
	for range 250 {
		m.step()
	}
	for len(m.running) > 0 {
		m.end(m.running[0])
	}
	time.Sleep(time.Minute / 2)
	m.mend()
	m.x.mu.Lock()
	m.x.post = newExchange().post
	m.x.mu.Unlock()
	m.open() // everything that was not received is shown now
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	for _, p := range m.sockets {
		m.check(p.take())
	}
	delivered := map[string]int{}
	for _, hub := range m.hubs {
		for _, prompt := range hub.delivered() {
			delivered[strings.TrimPrefix(prompt, "me/")]++
		}
	}
	for _, j := range m.jobs {
		require.Positive(m.t, m.got[j.prompt], "%s never came; it was received %d times", j.prompt, delivered[j.prompt])
		require.Positive(m.t, delivered[j.prompt], "%s was never received", j.prompt)
		if !m.messages {
			require.Equal(m.t, 1, delivered[j.prompt], j.prompt)
		}
	}
	nothingKept(m.t, m.hubs...)
}

func (m *hubsModel) step() {
	switch n := m.rand.IntN(100); {
	case n < 15 && len(m.running) < 5:
		j := &hubsJob{prompt: fmt.Sprint("p", len(m.jobs))}
		m.jobs = append(m.jobs, j)
		m.begin(j)
	case n < 60 && len(m.running) > 0:
		j := m.any()
		text := fmt.Sprintf("%s/%d message %d", j.prompt, j.fence, len(j.kept))
		j.kept = append(j.kept, text)
		j.run.Send(other(text))
	case n < 70 && len(m.running) > 0:
		m.end(m.any())
	case n < 74 && len(m.running) > 0:
		j := m.any()
		j.run.Lose()
		j.lost = true
		m.begin(j)
	case n < 80:
		m.open()
	case n < 83 && m.cuts:
		m.x.hubs[[]string{"a", "b", "c"}[m.rand.IntN(3)]].sever(true)
	case n < 87 && m.cuts:
		m.mend()
	default:
		time.Sleep(time.Duration(m.rand.IntN(2500)) * time.Millisecond)
	}
	if m.rand.IntN(2) == 0 {
		synctest.Wait()
	}
}

func (m *hubsModel) any() *hubsJob { return m.running[m.rand.IntN(len(m.running))] }

func (m *hubsModel) hub() *rig { return m.hubs[m.rand.IntN(len(m.hubs))] }

func (m *hubsModel) begin(j *hubsJob) {
	j.fence++
	j.kept = nil
	j.run = m.hub().job("me", j.prompt, j.fence)
	if !slices.Contains(m.running, j) {
		m.running = append(m.running, j)
	}
}

func (m *hubsModel) end(j *hubsJob) {
	m.running = slices.DeleteFunc(m.running, func(other *hubsJob) bool { return other == j })
	j.run.End(other(success(j.prompt)))
}

// open opens a newer socket; the previous one stays, leaves or is cut.
func (m *hubsModel) open() {
	if !m.messages {
		synctest.Wait() // all receipts arrive
	}
	if len(m.sockets) > 0 {
		switch last := m.sockets[len(m.sockets)-1]; m.rand.IntN(3) {
		case 0:
			synctest.Wait() // a client that closes in order has read what was sent
			_ = last.conn.Close(websocket.StatusNormalClosure, "")
		case 1:
			_ = last.conn.CloseNow()
		}
	}
	m.sockets = append(m.sockets, m.hub().open("/ws?clientId=me"))
	if !m.messages {
		synctest.Wait()
	}
}

// mend reconnects all hubs.
func (m *hubsModel) mend() {
	for _, hub := range m.x.hubs {
		hub.sever(false)
	}
}

// check reads what one socket was shown.
func (m *hubsModel) check(words []string) {
	open, fence := "", 0
	var kept []string
	for i, word := range words {
		switch {
		case word == hello(0, "me"), word == status(0):
		case strings.Contains(word, `"execution_start"`):
			prompt := promptIn(word)
			require.True(m.t, open == "" || m.job(open).lost || m.cuts, "%s begins while %s is open", prompt, open)
			open, fence, kept = prompt, 0, nil
		case strings.Contains(word, `"execution_success"`):
			require.Equal(m.t, open, promptIn(word))
			require.Equal(m.t, m.job(open).kept, kept, "%s is whole", open)
			require.Equal(m.t, words[i+1:min(i+3, len(words))], []string{status(0), null(open)}[:min(2, len(words)-i-1)])
		case strings.Contains(word, `"node": null`):
			require.Equal(m.t, open, promptIn(word))
			m.got[open]++
			open = ""
		default:
			var n int
			prompt, rest, _ := strings.Cut(word, "/")
			_, err := fmt.Sscanf(rest, "%d message", &n)
			require.NoError(m.t, err, word)
			require.Equal(m.t, open, prompt, "one prompt at a time")
			require.True(m.t, fence == 0 || fence == n, "one run of it at a time")
			fence = n
			kept = append(kept, word)
		}
	}
}

func (m *hubsModel) job(prompt string) *hubsJob {
	i := slices.IndexFunc(m.jobs, func(j *hubsJob) bool { return j.prompt == prompt })
	require.GreaterOrEqual(m.t, i, 0)
	return m.jobs[i]
}

// promptIn returns the prompt_id of a message.
func promptIn(word string) string {
	_, rest, _ := strings.Cut(word, `"prompt_id": "`)
	prompt, _, _ := strings.Cut(rest, `"`)
	return prompt
}
