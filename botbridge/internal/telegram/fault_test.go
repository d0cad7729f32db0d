package telegram

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
)

// A program outside tells the fake how calls fail.
func TestFaultsFromOutside(t *testing.T) {
	t.Parallel()
	tg, fake := newTelegram(t, fakebot.Options{}, Options{})
	order := func(body string) int {
		response, err := http.Post(tg.o.Server+"/fake/fault", "application/json", strings.NewReader(body))
		require.NoError(t, err)
		response.Body.Close()
		return response.StatusCode
	}
	send := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := tg.Send(ctx, home, platform.Post{Text: "x"})
		return err
	}
	require.Equal(t, http.StatusOK, order(`{"fault": "hang_after", "for": "1h"}`))
	require.ErrorIs(t, send(), platform.ErrUncertain)
	require.Len(t, fake.Person(7, "").All(), 1, "it took effect")
	require.Equal(t, http.StatusOK, order(`{"method": "sendMessage", "fault": "hang", "for": "1h"}`))
	require.ErrorIs(t, send(), platform.ErrUncertain)
	require.Len(t, fake.Person(7, "").All(), 1, "it did not")
	require.Equal(t, http.StatusOK, order(`{"for": "0s"}`))
	_, err := tg.Send(t.Context(), home, platform.Post{Text: "x"})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, order(`{"for": "1h", "delay": "10ms"}`))
	_, err = tg.Send(t.Context(), home, platform.Post{Text: "x"})
	require.NoError(t, err)
	for _, wrong := range []string{`{"fault": "fire", "for": "1s"}`, `{"fault": "hang"}`, `{"for": "1s", "delay": "long"}`, `[`} {
		require.Equal(t, http.StatusBadRequest, order(wrong), wrong)
	}
}
