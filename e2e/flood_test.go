package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// floodRate is how many prompts a minute the user may post who floods the hub.
const floodRate = 60

// flood is what the hub says to a user who posts prompts without a pause.
type flood struct{ accepted, refused atomic.Int64 }

// post posts one more prompt. Each answer is an acceptance, or says which limit was reached
// and when it ends.
func (f *flood) post(ctx context.Context, on *fleet, _ int) error {
	n := f.accepted.Load() + f.refused.Load()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, on.URL("/prompt"), strings.NewReader(fmt.Sprintf(`{"prompt": {
		"1": {"class_type": "EmptyImage", "inputs": {"width": 8, "height": 8, "batch_size": 1, "color": %d}},
		"2": {"class_type": "PreviewImage", "inputs": {"images": ["1", 0]}}}}`, n)))
	if err != nil {
		return err
	}
	r.SetBasicAuth(attacker, password)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode == http.StatusOK {
		f.accepted.Add(1)
		return nil
	}
	var answer struct {
		Error struct{ Type, Message, Details string }
	}
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	// At this rate the next prompt is a second away, whatever was refused meanwhile.
	when := fmt.Sprintf(" You can go on in %ds.", after)
	if err = errors.Join(err, json.Unmarshal(body, &answer)); err != nil {
		return err
	}
	if resp.StatusCode != http.StatusTooManyRequests || answer.Error.Type != "tenant_rate" || after < 1 || after > 2 ||
		!strings.Contains(answer.Error.Details, "(tenant_limits rate)") || !strings.HasSuffix(answer.Error.Details, when) {
		return fmt.Errorf("%d, Retry-After %d, %.300s", resp.StatusCode, after, body)
	}
	f.refused.Add(1)
	return nil
}

// A user who posts prompts without a pause gets no more of them in than its rate allows, is told
// so each time, and may go on when it was told. The other user's prompts are all accepted
// meanwhile; how long they take is printed beside how long they take on a quiet hub.
func TestAttacksOnTheRate(t *testing.T) {
	t.Parallel()
	length := attackLength(t)
	f := siege(t, fmt.Sprintf("tenant_limits %s {\n\t\t\trate %d\n\t\t}", attacker, floodRate))
	const listing = "/hub/stats" // in place of a preview
	quiet := f.during(t, length, listing, attack{})
	said, begun := &flood{}, time.Now()
	var wrong atomic.Pointer[error]
	took := f.during(t, length, listing, attack{"rate", 8, func(ctx context.Context, f *fleet, n int) error {
		err := said.post(ctx, f, n)
		if err != nil && ctx.Err() == nil {
			wrong.Store(&err)
		}
		return err
	}})
	lasted := time.Since(begun)
	if err := wrong.Load(); err != nil {
		require.NoError(t, *err)
	}
	t.Logf("ATTACK name=rate p99=%s quiet=%s ratio=%.1f requests=%d accepted=%d refused=%d", p99(took).Round(time.Millisecond),
		p99(quiet).Round(time.Millisecond), float64(p99(took))/float64(p99(quiet)), len(took), said.accepted.Load(), said.refused.Load())
	// A minute's worth at once, and then by the rate.
	require.LessOrEqual(t, said.accepted.Load(), int64(floodRate*(1+lasted.Minutes()))+1)
	for said.refused.Load() == 0 {
		require.NoError(t, said.post(t.Context(), f, 0))
	}
	before := said.accepted.Load()
	f.eventually(func() bool {
		require.NoError(t, said.post(t.Context(), f, 0))
		return said.accepted.Load() > before
	}, "the user may go on")
}
