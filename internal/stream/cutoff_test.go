package stream

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// aside is what gossip tells a hub that is cut off.
type aside struct{ others, reached atomic.Bool }

func (a *aside) Reached(ok bool) { a.reached.Store(ok) }

func (a *aside) Reach() bool { return a.others.Load() }

func TestHubAloneIsCutOff(t *testing.T) {
	near := &aside{}
	twoHubs(t, Options{KeepAlive: time.Hour, Neighbours: near}, func(t *testing.T, x *exchange, a, _ *rig) {
		open := func(p *peer) bool {
			p.settled()
			select {
			case <-p.over:
				return false
			default:
				return true
			}
		}
		p := a.open("/ws?clientId=me")
		x.hubs["b"].sever(true) // and says no more of itself than a
		x.hubs["a"].sever(true)
		time.Sleep(10 * time.Minute)
		require.True(t, open(p), "nobody is better off")
		require.False(t, near.reached.Load())

		near.others.Store(true)
		time.Sleep(cutOffAfter)
		require.False(t, open(p), "another hub knows more")
		_, resp, err := a.request("/ws?clientId=me", nil)
		require.Error(t, err)
		require.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)

		near.others.Store(false)
		time.Sleep(2 * heartbeatInterval)
		require.True(t, open(a.open("/ws?clientId=me")), "nobody is better off any more")

		x.hubs["a"].sever(false)
		time.Sleep(heartbeatInterval)
		last := a.open("/ws?clientId=me")
		x.hubs["a"].sever(true)
		time.Sleep(cutOffAfter / 2)
		require.True(t, open(last), "not for a moment")
	})
}
