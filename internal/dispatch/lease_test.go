package dispatch

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/job"
)

// The dispatcher holds a connection while it asks the queue for leave to give it a
// job; a run that is being taken over must wait for that, not be given up.
func TestAdoptedRunWaitsForTheLink(t *testing.T) {
	t.Parallel()
	d := New(Config{Settings: func() Settings { return Settings{ContactTimeout: time.Minute} }})
	conn := &connection{name: "gpu"}
	trying := &run{d: d, claim: claim{own: job.Job{Key: "other"}}}
	require.True(t, conn.attach(trying))
	adopted := &run{d: d, claim: claim{own: job.Job{Key: "adopted"}}}
	seized := make(chan bool)
	go func() { seized <- d.seize(t.Context(), conn, adopted) }()
	select {
	case <-seized:
		t.Fatal("the connection was not free")
	case <-time.After(50 * time.Millisecond):
	}
	require.True(t, conn.detach(trying))
	require.True(t, <-seized)
	require.Equal(t, adopted, conn.running())
}
