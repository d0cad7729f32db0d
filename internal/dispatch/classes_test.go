package dispatch

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/catalog"
	"github.com/comfyhub/comfyhub/internal/job"
	"github.com/comfyhub/comfyhub/internal/queue"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// A hub meets the classes that wait where it looks for jobs, however many there are, and
// finds what its instances can run behind all that they cannot.
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
		idle := []Idle{{Name: "a", Refused: map[string]bool{}}}
		w, l, err := d.look(t.Context(), idle, []*catalog.Info{described(t)}, 0)
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

	w := must(d.window(t.Context(), []Idle{{Name: "a"}}, []*catalog.Info{described(t)}, &wanted, 1, 4))
	require.Len(t, w.Jobs, 1)
	require.Equal(t, "later", w.Jobs[0].Class)
	require.Len(t, wanted.But, others+1)

	another, err := queue.New(db, queue.Options{}) // q would remember what the class needs
	require.NoError(t, err)
	q = another
	post("lost", needing("Common"))
	require.NoError(t, db.Client().Del(t.Context(), db.Key("q", "class", "lost")).Err())
	w = must(d.window(t.Context(), []Idle{{Name: "a"}}, []*catalog.Info{described(t)}, &wanted, 0, 5))
	require.Len(t, w.Jobs, 2, "what a job needs that nobody knows is not guessed")
}
