package system_test

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/files"
	"github.com/comfyhub/comfyhub/system"
	"github.com/comfyhub/comfyhub/system/network"
)

// The end of a run is written in two halves, its picture into the storage and its end into
// Redis, and then the client is told. The hub is killed between each of these: the other one
// ends the prompt with its picture, and it does not run again.
func TestHubIsKilledBetweenTheHalvesOfAnEnd(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]bool{"the storage has the picture": false, "Redis has the end": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, system.Config{Hubs: 2, Comfys: 1}, func(w *system.World, ledger *system.Ledger) {
				client := asks(w, ledger, "ann", 5)
				w.Until(time.Minute, "a server runs it", func() bool { return running(w) != nil })
				stored := make(chan string, 1)
				var once sync.Once
				<-time.After(4500 * time.Millisecond) // nothing else is about to be stored
				w.Disk.Watch(func(host string, step files.Step) {
					if step != files.StepName {
						return
					}
					once.Do(func() {
						if told {
							w.Net.Set(host, "ann", network.Link{Silent: true})
						} else {
							w.Net.SetBoth(host, "redis", network.Link{Silent: true})
						}
						stored <- host
					})
				})
				var host string
				select {
				case host = <-stored:
				case <-time.After(time.Minute):
					require.Fail(t, "nobody stores the picture")
				}
				w.Disk.Watch(nil)
				at := slices.IndexFunc(w.Hubs, func(h *system.Hub) bool { return strings.Contains(h.URL(), host+":") })
				other := w.Hubs[1-at]
				ended := func() bool {
					_, answer := other.Call(http.MethodGet, "/history/ann-1", "")
					return strings.Contains(string(answer), "success")
				}
				if told {
					w.Until(time.Minute, "Redis has the end", ended)
				} else {
					<-time.After(time.Second)
					require.False(t, ended())
				}
				w.Hubs[at].Kill()
				w.Net.SetBoth(host, "redis", network.Link{})
				w.Net.SetBoth(host, "ann", network.Link{})
				w.Net.Reset("ann", host)
				select {
				case <-client:
				case <-time.After(2 * time.Minute):
					require.Fail(t, "nobody tells the client")
				}
				require.True(t, ended())
				require.Equal(t, 1, w.Comfys[0].Started())
			})
		})
	}
}
