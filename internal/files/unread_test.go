package files

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// unread is a client that does not read its answer until it is told to.
type unread struct {
	*httptest.ResponseRecorder

	writes chan<- struct{} // one for each answer that has begun
	reads  <-chan struct{}
	once   sync.Once
}

func (u *unread) Write(p []byte) (int, error) {
	u.once.Do(func() {
		u.writes <- struct{}{}
		<-u.reads
	})
	return u.ResponseRecorder.Write(p)
}

// What waits for clients that do not read is counted, takes a small part of the memory for
// what arrives, and lies on the disk for the rest.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	s := newStore(t, redistest.Embedded(t))
	v := NewView(s, newInstance().fetch, ViewOptions{})
	_, data := noise(t, 300, 200)
	s.mustUpload(t, input("noise.png"), data)
	const clients, part = 20, 1 << 20
	for name, query := range map[string]string{
		"a picture": "filename=noise.png&type=input&channel=rgb",
		"a file":    "filename=noise.png&type=input",
	} {
		b := budget.New()
		b.Resize(budget.Memory, part, 1, nil)
		b.Resize(budget.Disk, 64<<20, 1, nil)
		writes, reads := make(chan struct{}, clients), make(chan struct{})
		answers := make([]*httptest.ResponseRecorder, clients)
		var all sync.WaitGroup
		for n := range answers {
			answers[n] = httptest.NewRecorder()
			all.Go(func() {
				held := b.Open("ann", nil)
				defer held.Close()
				r := httptest.NewRequestWithContext(budget.With(t.Context(), held), http.MethodGet, "/view?"+query, http.NoBody)
				v.ServeView(&unread{ResponseRecorder: answers[n], writes: writes, reads: reads}, r, tenant, "ann")
			})
		}
		for range clients {
			<-writes
		}
		require.Positive(t, b.Used(budget.Memory), name)
		require.LessOrEqual(t, b.Used(budget.Memory), int64(part/4), name)
		close(reads)
		all.Wait()
		for _, answer := range answers {
			require.Equal(t, http.StatusOK, answer.Code, name)
			require.Equal(t, answers[0].Body.Len(), answer.Body.Len(), name)
		}
		require.Zero(t, b.Used(budget.Memory), name)
		require.Zero(t, b.Used(budget.Disk), name)
	}
}
