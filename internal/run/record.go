package run

import (
	"context"
	"errors"
	"time"

	"github.com/comfyhub/comfyhub/internal/comfyui"
	"github.com/comfyhub/comfyhub/internal/retry"
)

// maxMissing is how often an instance may answer, with pauses, that it has no record of the run:
// the record exists once the last message has been sent, give or take a moment.
const maxMissing = 30

// readRecord reads the instance's record of the run. The work is done, so an instance that does not
// answer is asked for as long as it may be out of reach, and one that answers late is waited for; a
// client that cancels meanwhile need not wait.
func (r collecting) readRecord(ctx context.Context) (entry []byte, found bool, res result) {
	conn, upstream := r.conn, r.Lease().Upstream
	within := r.d.Settings().ContactTimeout
	if _, known := showing(r).transcribed(); !known { // else its messages will do
		within = max(within, r.d.Files.Patience())
	}
	var record []byte // written by work that may outlast this call
	res, _ = r.meanwhile(ctx, "reading the record of a run", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		pauses := retry.New(100*time.Millisecond, 500*time.Millisecond)
		for missing := 0; missing < maxMissing; {
			if now := r.d.Links.Get(conn.Name); now != nil {
				conn = now // it may have come back at another address
			}
			read, there, err := conn.Client.History(ctx, upstream)
			switch {
			case err == nil && there:
				record = read
				return nil
			case err == nil:
				missing++
			case errors.Is(err, comfyui.ErrTooLarge):
				r.log.Error("the instance's record of the run is too large to be read", "instance", conn.Name)
				return err
			}
			if !pauses.Wait(ctx) {
				return err
			}
		}
		return nil
	})
	if res.kind != undecided {
		return nil, false, res
	}
	return record, record != nil, res
}

// recorded returns how long the run has taken as its instance's record says; zero if that is not known.
func (r collecting) recorded(ctx context.Context) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	entry, there, err := r.conn.Client.History(ctx, r.Lease().Upstream)
	if err != nil || !there {
		return 0
	}
	parts, _ := comfyui.ParseEntry(entry)
	return parts.Ran()
}
