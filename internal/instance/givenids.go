package instance

import (
	"sync"

	"github.com/google/uuid"

	"github.com/comfyhub/comfyhub/internal/job"
)

// givenIDs are the prompt ids that an instance has been given.
type givenIDs struct {
	mu  sync.Mutex
	ids map[string]bool
}

// UpstreamID returns the prompt_id for an attempt. The first attempt uses the client's id if every
// server accepts it; each later one is fresh, so that late messages of an earlier attempt cannot be
// mistaken for it. An id that this instance was given before is not used again either: a client may
// use an id twice, and two tenants may use the same one, and the record of one run must not be
// taken for the other's, or removed in its place.
func (g *givenIDs) UpstreamID(j job.Job) string {
	id, err := uuid.Parse(j.ID)
	if err != nil || id.String() != j.ID || j.Attempts > 0 || j.Parent != "" {
		return uuid.NewString()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ids[j.ID] {
		return uuid.NewString()
	}
	const enough = 10_000
	if g.ids == nil || len(g.ids) >= enough {
		g.ids = map[string]bool{} // what ran so long ago is not in the way
	}
	g.ids[j.ID] = true
	return j.ID
}
