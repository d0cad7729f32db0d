package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/stage"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

const secret = "a-secret_of-sufficient-length"

func TestWebhookDelivery(t *testing.T) { //nolint:tparallel // one thing after the other
	t.Parallel()
	r := newRig(t, func(o *stage.Options) {
		o.Env = []string{"HOOK_SECRET=" + secret}
		// BRIDGE_URL stands for the address, which is known only once the bridge has one.
		o.Config = strings.ReplaceAll(config, "telegram: {rate: 10}",
			"telegram: {rate: 10, webhook: BRIDGE_URL/telegram/webhook, webhook_secret: {env: HOOK_SECRET}}\ndelivery: edit")
	})
	ada := r.Fake.Person(3, "en")
	asked, _ := ada.Say("/work")
	r.waitFor(ada, "the picture in the place of the status", fakebot.Answering(asked, fakebot.IsPicture))
	require.Len(t, fakebot.Filter(ada.All(), func(m fakebot.Message) bool { return m.FromBot }), 1)
	require.Zero(t, r.Fake.Calls()["getUpdates"])

	call := func(secret, body string) int {
		request := must.Get(http.NewRequest(http.MethodPost, r.BridgeURL+"/telegram/webhook", strings.NewReader(body)))(t)
		if secret != "" {
			request.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
		}
		response := must.Get(http.DefaultClient.Do(request))(t)
		response.Body.Close()
		return response.StatusCode
	}
	update := `{"update_id": 9999, "message": {"message_id": 500, "date": 1, "chat": {"id": 3, "type": "private"}, "from": {"id": 3}, "text": "/work"}}`
	t.Run("webhook with a wrong secret", func(t *testing.T) {
		for _, wrong := range []string{"", "wrong", secret[1:], secret + "x", strings.ToUpper(secret)} {
			require.Equal(t, http.StatusUnauthorized, call(wrong, update))
		}
		require.Equal(t, http.StatusBadRequest, call(secret, `{"update_id": `))
		require.Equal(t, http.StatusBadRequest, call(secret, `{"message": {"text": "`+strings.Repeat("x", 1<<20)+`"}}`), "no update is so large")
	})
	// Telegram sends one update twice.
	for range 2 {
		require.Equal(t, http.StatusOK, call(secret, update))
	}
	r.waitFor(ada, "its picture", fakebot.Answering(500, fakebot.IsPicture))
	last, _ := ada.Say("/work")
	r.waitFor(ada, "another", fakebot.Answering(last, fakebot.IsPicture))
	require.Len(t, fakebot.Filter(ada.All(), fakebot.IsPicture), 3, "one update is one request")
}
