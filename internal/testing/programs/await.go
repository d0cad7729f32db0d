package programs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// patience bounds each Await. It is long because a machine that runs other tests
// is slow.
const patience = 2 * time.Minute

// errEnded says that a program has ended that should not have.
var errEnded = errors.New("it has ended")

// Eventually repeats a check until it holds, and reports whether it did in time.
func Eventually(limit time.Duration, holds func() bool) bool {
	for began := time.Now(); !holds(); {
		waited := time.Since(began)
		if waited > limit {
			return false
		}
		time.Sleep(pause(waited))
	}
	return true
}

// pause is how long to wait before a check is repeated that has failed for some time: a
// twentieth of it, within bounds, so that long waits cost little and end soon.
func pause(waited time.Duration) time.Duration {
	return min(max(waited/20, 20*time.Millisecond), 200*time.Millisecond)
}

// Await repeats a check until it succeeds. It fails after 2 minutes, or when the
// context or the program ends; what says in the error what was waited for.
func (p *Program) Await(ctx context.Context, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for began := time.Now(); ; {
		err := check(ctx)
		switch {
		case !p.Running(): // if the check succeeded, another program has answered
			return fmt.Errorf("%s: waiting until %s: %w", p.spec.Name, what, errors.Join(errEnded, err))
		case err == nil:
			return nil
		}
		select {
		case <-time.After(pause(time.Since(began))):
		case <-p.Ended():
		case <-ctx.Done():
			return fmt.Errorf("%s: waiting until %s: %w", p.spec.Name, what, errors.Join(context.Cause(ctx), err))
		}
	}
}

// answers checks that a server does what it is asked, or asks for a login.
func answers(ctx context.Context, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("GET %s: %s", url, resp.Status)
	}
	return nil
}

// Get reads JSON into v, unless v is nil. Any status but 200 is an error.
func Get(ctx context.Context, url string, v any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("GET %s: %s: %.500s", url, resp.Status, body)
	case v == nil:
		return nil
	}
	return json.Unmarshal(body, v)
}
