package shell

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/retry"
)

// patience is how long a waiting command does without the hub, which restarts in seconds.
const patience = 2 * time.Minute

// readEvents reads a stream of server-sent events, and calls each with the data of every
// one until each returns false. It returns nil when the stream ends.
func readEvents(from io.Reader, each func(data string) bool) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxAnswer)
	var data strings.Builder
	for lines.Scan() {
		line := lines.Text()
		if line == "" {
			if data.Len() > 0 && !each(data.String()) {
				return nil
			}
			data.Reset()
			continue
		}
		if more, ok := strings.CutPrefix(line, "data:"); ok {
			if data.Len()+len(more) > maxAnswer {
				return bufio.ErrTooLong
			}
			if data.Len() > 0 {
				data.WriteByte('\n')
			}
			data.WriteString(strings.TrimPrefix(more, " "))
		}
	}
	return lines.Err()
}

// stream follows a job on one connection. It returns the job as it was told last.
func (c *Client) stream(ctx context.Context, id string, each func(Job)) (last Job, err error) {
	p, err := path("events", id)
	if err != nil {
		return last, err
	}
	resp, err := c.send(ctx, http.MethodGet, p, nil, nil)
	if err != nil {
		return last, err
	}
	defer resp.Body.Close()
	var bad error
	err = readEvents(resp.Body, func(data string) bool {
		j, err := readJob([]byte(data))
		if err != nil {
			bad = err
			return false
		}
		last = j
		each(j)
		return !j.Over()
	})
	if bad != nil {
		return last, &coded{ExitUnknown, bad}
	}
	return last, err
}

// Follow calls each with a job, and again whenever it has changed, until it has ended. It
// connects again as often as it has to, and gives up when the hub is away for too long.
func (c *Client) Follow(ctx context.Context, id string, each func(Job)) (Job, error) {
	pause := retry.New(500*time.Millisecond, 10*time.Second)
	heard := time.Now()
	for {
		last, err := c.stream(ctx, id, each)
		var refusal *Refusal
		var fatal *coded
		wait := pause.Next()
		switch {
		case last.Over() && last.ID != "":
			return last, nil
		case ctx.Err() != nil:
			return last, ctx.Err()
		case errors.As(err, &fatal):
			return last, err
		case errors.As(err, &refusal) && refusal.Status == http.StatusTooManyRequests:
			heard = time.Now() // the hub lives, and others of the user's commands wait, too
			wait = max(wait, min(refusal.RetryAfter, time.Minute))
		case errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError:
			return last, err
		case last.ID != "":
			heard = time.Now()
			pause.Reset()
		}
		if err == nil {
			err = errors.New("the hub has ended the stream of events")
		}
		if time.Since(heard) > patience {
			return last, err
		}
		if !retry.Sleep(ctx, wait) {
			return last, ctx.Err()
		}
	}
}
