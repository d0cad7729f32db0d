package callbacks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"time"

	"github.com/comfyhub/comfyhub/internal/egress"
	"github.com/comfyhub/comfyhub/internal/queue"
)

// message is the body of a callback. Moments of data are Unix seconds, as elsewhere in the
// hub's API.
type message struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"`
	Data      data      `json:"data"`
}

type data struct {
	ID         string   `json:"id"`
	CreatedAt  *float64 `json:"created_at"`
	StartedAt  *float64 `json:"started_at"`
	FinishedAt *float64 `json:"finished_at"`
	Progress   *float64 `json:"progress"`
	Error      *string  `json:"error"`
}

// bodyOf is the body that reports an event: the same each time it is sent.
func bodyOf(e queue.CallbackEvent) ([]byte, error) {
	m := message{
		Type: "job." + e.Name, Timestamp: time.UnixMilli(e.At).UTC(),
		Data: data{ID: e.Prompt, CreatedAt: seconds(e.CreatedAt), StartedAt: seconds(e.StartedAt), FinishedAt: seconds(e.FinishedAt)},
	}
	if e.Reason != "" && e.Name == queue.EventFailed {
		m.Data.Error = &e.Reason
	}
	if e.Name == queue.EventProgress {
		m.Data.Progress = &e.Progress
	}
	return json.Marshal(m)
}

func seconds(ms int64) *float64 {
	if ms == 0 {
		return nil
	}
	s := float64(ms) / 1000
	return &s
}

// SecretOf is the secret of a tenant, as Standard Webhooks write it. Nobody who knows it
// can sign what another tenant would take for the hub's.
func SecretOf(secret, tenant string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(keyOf(secret, tenant))
}

func keyOf(secret, tenant string) []byte {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte("comfyhub callbacks v1\x00" + tenant))
	return mac.Sum(nil)
}

// headerOf signs a body with each of the operator's secrets.
func headerOf(secrets []string, e queue.CallbackEvent, body []byte, now time.Time) (http.Header, error) {
	keys := make([][]byte, len(secrets))
	for n, secret := range secrets {
		keys[n] = keyOf(secret, e.Tenant)
	}
	return egress.Signed(keys, e.ID, body, now)
}
