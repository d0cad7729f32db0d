package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// settle waits until nothing is left of earlier connections, and returns how much memory the
// hub has then. From here on it is told how much it has at most.
func (f *fleet) settle(t *testing.T) int64 {
	t.Helper()
	last := int64(0)
	require.NoError(t, f.Hub.Await(t.Context(), "its memory is given back", func(ctx context.Context) error {
		if err := f.collect(ctx); err != nil {
			return err
		}
		now, _ := f.Hub.Memory()
		shrinks := last == 0 || now < last-1<<20
		last = now
		if shrinks {
			return fmt.Errorf("it becomes less, now %d MiB", now>>20)
		}
		return nil
	}))
	require.NoError(t, f.forgetPeak())
	now, _ := f.Hub.Memory()
	return now
}

// forgetPeak makes the system forget how much memory the hub has had.
func (f *fleet) forgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", f.Hub.PID()), []byte("5"), 0)
}

// collect has the hub collect its garbage.
func (f *fleet) collect(ctx context.Context) error {
	_, err := f.inUse(ctx)
	return err
}

// inUse is how many bytes the hub's objects and stacks take once it has collected its garbage.
func (f *fleet) inUse(ctx context.Context) (used int64, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.Admin+"/debug/pprof/heap?gc=1&debug=1", http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return 0, errors.New(resp.Status)
	}
	for _, figure := range []string{"\n# HeapInuse = ", "\n# Stack = "} {
		_, rest, _ := strings.Cut(string(text), figure)
		var n int64
		if _, err := fmt.Sscan(rest, &n); err != nil {
			return 0, fmt.Errorf("%q: %w", figure, err)
		}
		used += n
	}
	return used, err
}
