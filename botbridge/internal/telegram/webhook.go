package telegram

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"net/http"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

const (
	// WebhookPath is where Telegram calls.
	WebhookPath = "/telegram/webhook"
	// maxUpdate bounds the body of one update, in bytes. Real ones stay below a
	// few tens of kB.
	maxUpdate    = 1 << 20
	secretHeader = "X-Telegram-Bot-Api-Secret-Token" //nolint:gosec // the name of a header, no secret
)

// Routes implements platform.Platform.
func (t *Telegram) Routes(admit platform.Admit) map[string]http.Handler {
	if t.o.Webhook == "" {
		return nil
	}
	return map[string]http.Handler{"POST " + WebhookPath: t.webhook(admit)}
}

// webhook handles one update. It answers 200 only once the update is stored;
// otherwise Telegram delivers it again.
func (t *Telegram) webhook(admit platform.Admit) http.Handler {
	want := sha256.Sum256([]byte(t.o.Secret))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Hashes have the same length, so the comparison reveals nothing about the
		// secret's.
		got := sha256.Sum256([]byte(r.Header.Get(secretHeader)))
		if subtle.ConstantTimeCompare(want[:], got[:]) != 1 {
			http.Error(w, "wrong secret", http.StatusUnauthorized)
			return
		}
		var raw json.RawMessage
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxUpdate)).Decode(&raw); err != nil || raw[0] != '{' {
			http.Error(w, "not an update", http.StatusBadRequest)
			return
		}
		// One that is understood by newer bots only is left out; otherwise Telegram would
		// deliver it again and again.
		for _, u := range t.decode([]json.RawMessage{raw}) {
			if err := t.admit(r.Context(), u, admit); err != nil {
				w.Header().Set("Retry-After", "5")
				http.Error(w, "try again", http.StatusServiceUnavailable)
				return
			}
		}
		w.WriteHeader(http.StatusOK)
	})
}
