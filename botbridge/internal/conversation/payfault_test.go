package conversation

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/limits"
	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
)

// The script that records a payment has failed halfway: the payment is known, and what it
// pays for is not. It is given back.
func TestPaymentForWhatIsNotStored(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.sells()
	r.event("5", "5", platform.Said, "m1", "/generate a fox")
	id := request.IDOf("telegram/1")
	charge := state.Charge{ID: "c1", Platform: "telegram", Who: "telegram:5", User: "5", Request: id, Price: 5, At: time.Now()}
	_, err := r.store.Payments.Pay(r.ctx, charge, "no order", &request.Record{ID: id})
	require.NoError(t, err)
	_, err = r.store.Requests.Finish(r.ctx, id, 1, &request.Record{ID: id}, state.End{Who: "telegram:5", Asked: time.Now(), Command: "x", Outcome: "lost"})
	require.NoError(t, err)
	gone, err := r.store.Requests.Forget(r.ctx, id)
	require.NoError(t, err)
	require.True(t, gone)
	require.Empty(t, r.due())
	for range 2 {
		r.pays("5", platform.Payment{Payload: r.invoices()[0].Payload, Price: 5, Charge: "c1"})
		require.Equal(t, []string{"c1"}, r.due())
	}
	said := r.p.in("5")
	require.Contains(t, said[len(said)-1], "You're getting your 5 Stars back.")
}

// Settings that cannot be read keep no payment from being recorded.
func TestPaymentWithUnreadableSettings(t *testing.T) {
	t.Parallel()
	r := newRig(t, limits.Config{})
	r.sells()
	r.event("5", "5", platform.Said, "m1", "/generate a fox")
	require.NoError(t, r.store.Put(r.ctx, settingsKind, "telegram:5", "no settings", 0))
	r.pays("5", platform.Payment{Payload: r.invoices()[0].Payload, Price: 5, Charge: "c1"})
	require.Equal(t, []string{"a fox"}, r.prompts("5"))
}
