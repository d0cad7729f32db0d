package hub

import (
	"time"

	"github.com/comfyhub/comfyhub/internal/tenants"
)

// Tests of a whole hub are package hub_test: they need the rooms, which import this package. These
// are the parts that they look at.

func (h *Hub) Logins() *tenants.Logins { return &h.logins }
func (h *Hub) Since() time.Time        { return h.since }
func (h *Hub) AwaitOpening()           { h.opening.Checks.Wait() }
