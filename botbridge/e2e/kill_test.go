package e2e

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

func TestBridgeKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const people = 8
	var all []*fakebot.Person
	asked := map[*fakebot.Person][]int{}
	for id := range people {
		p := r.Fake.Person(int64(100+id), "en")
		all = append(all, p)
		for range 3 {
			m, _ := p.Say("/work")
			asked[p] = append(asked[p], m)
		}
	}
	// The first picture is there. The others are at every stage of their way.
	r.wait(all[0], "a first picture", func(list []fakebot.Message) bool { return len(filter(list, isPicture)) > 0 })
	r.Bridge.Kill()
	late, _ := all[1].Say("/work")
	asked[all[1]] = append(asked[all[1]], late)
	require.NoError(t, r.RestartBridge(r.ctx))
	for _, p := range all {
		for _, m := range asked[p] {
			r.wait(p, "an end", func(list []fakebot.Message) bool { return ends(list, m) > 0 })
		}
	}
	pictures := 0
	for _, p := range all {
		for _, m := range asked[p] {
			require.Equal(t, 1, ends(p.Sees(), m), texts(p.All()))
			n := len(filter(p.All(), answering(m, isPicture)))
			require.LessOrEqual(t, n, 1, "nobody gets it twice")
			pictures += n
		}
	}
	require.GreaterOrEqual(t, pictures, 3*people+1-people, "at most what was being sent at that moment is in doubt: one picture in each chat")
}

// ends counts the ends of a request that its person sees: its pictures or
// apologies.
func ends(list []fakebot.Message, message int) int {
	pictures := len(filter(list, answering(message, isPicture)))
	apologies := len(filter(list, answering(message, func(m fakebot.Message) bool {
		return m.FromBot && (saying("the connection dropped before")(m) || saying("Sorry")(m) || saying("couldn't make that")(m))
	})))
	if pictures > 0 && apologies > 0 {
		// The picture did arrive, and the bridge could not know.
		return pictures
	}
	return pictures + apologies
}
