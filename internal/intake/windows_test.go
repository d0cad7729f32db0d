package intake

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/budget"
)

// What an HTTP/2 connection may send ahead is counted once, however many requests it has,
// and a caller with too many connections is refused.
func TestWhatIsSentAheadIsCounted(t *testing.T) {
	t.Parallel()
	b := budget.New()
	in := New(Options{Budget: b, Limits: Limits{Memory: 64 * windowCost}}) // two for one caller
	arrive := func(proto int, peer string, length int64) (done func(), err error) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/prompt", strings.NewReader("{"))
		r.ProtoMajor, r.RemoteAddr, r.ContentLength = proto, peer, length
		_, done, err = in.Guard(httptest.NewRecorder(), r, "ann")
		return done, err
	}
	var dones []func()
	for range 10 {
		done, err := arrive(2, "10.0.0.1:1", -1)
		require.NoError(t, err)
		dones = append(dones, done)
	}
	require.Equal(t, int64(windowCost+10*arrivalCost), b.Used(budget.Memory))
	done, err := arrive(2, "10.0.0.1:2", 1000)
	require.NoError(t, err)
	dones = append(dones, done)
	require.Equal(t, int64(windowCost+11*arrivalCost+1000), b.Used(budget.Memory), "no more than it will send")
	_, err = arrive(2, "10.0.0.1:3", -1)
	require.ErrorIs(t, err, ErrBusy)
	_, err = arrive(3, "10.0.0.1:3", 100<<20)
	require.ErrorIs(t, err, ErrBusy)
	done, err = arrive(1, "10.0.0.1:4", -1)
	require.NoError(t, err, "the system keeps it")
	dones = append(dones, done)
	for _, done := range dones {
		done()
	}
	require.Zero(t, b.Used(budget.Memory))
	require.Empty(t, in.ahead.of)
}
