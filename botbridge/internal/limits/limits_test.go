package limits

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
	"github.com/comfyhub/comfyhub/botbridge/internal/state"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func guard(t *testing.T, c Config) *Guard {
	t.Helper()
	store := must.Get(state.Open(t.Context(), state.Place{URL: "embedded", Dir: t.TempDir()}, state.Options{}))(t)
	t.Cleanup(func() { _ = store.Close() })
	return must.Get(New(c, store))(t)
}

func from(user, chat string) platform.Event {
	return platform.Event{Platform: "telegram", User: platform.User{ID: user}, Chat: platform.Chat{ID: chat}}
}

func TestStanding(t *testing.T) {
	t.Parallel()
	g := guard(t, Config{
		AllowUsers: []string{"telegram:1"}, AllowChats: []string{"telegram:-9"},
		BlockUsers: []string{"telegram:3"}, BlockChats: []string{"telegram:-8"}, Admins: []string{"telegram:5"},
	})
	check := func(user, chat string, want Standing) {
		t.Helper()
		require.Equal(t, want, must.Get(g.Standing(t.Context(), from(user, chat)))(t))
	}
	check("1", "1", Welcome)
	check("2", "2", Stranger)
	check("2", "-9", Welcome)
	check("3", "-9", Banned)
	check("1", "-8", Banned)
	check("5", "-8", Welcome)
	require.NoError(t, g.Ban(t.Context(), "telegram:1", "telegram:5", 0))
	check("1", "1", Banned)
	require.NoError(t, g.Unban(t.Context(), "telegram:1"))
	check("1", "1", Welcome)
	other := from("1", "1")
	other.Platform = "webchat"
	require.Equal(t, Stranger, must.Get(g.Standing(t.Context(), other))(t), "the same id elsewhere is somebody else")
}

func TestShares(t *testing.T) {
	t.Parallel()
	g := guard(t, Config{Pictures: 10, Admins: []string{"telegram:5"}})
	share, metered, err := g.Share(t.Context(), from("1", "1"))
	require.NoError(t, err)
	require.EqualValues(t, 10, share)
	require.False(t, metered)
	require.NoError(t, g.SetShare(t.Context(), "telegram:1", 3))
	share, _, err = g.Share(t.Context(), from("1", "1"))
	require.NoError(t, err)
	require.EqualValues(t, 3, share)
	share, _, err = g.Share(t.Context(), from("5", "5"))
	require.NoError(t, err)
	require.Zero(t, share)
	_, err = New(Config{Pictures: 1, GPUSeconds: 1}, nil)
	require.Error(t, err)
	_, err = New(Config{Admins: []string{"12345"}}, nil)
	require.ErrorContains(t, err, "telegram:12345")
}

func TestFlood(t *testing.T) {
	t.Parallel()
	g := guard(t, Config{Messages: 3})
	now := time.Now()
	floods, told := 0, 0
	for range 10 {
		flood, tell := g.Flood(from("1", "1"), now)
		if flood {
			floods++
		}
		if tell {
			told++
		}
	}
	require.Equal(t, []int{7, 1}, []int{floods, told})
	flood, _ := g.Flood(from("2", "1"), now)
	require.False(t, flood, "others are not held up")
	flood, _ = g.Flood(from("1", "1"), now.Add(5*time.Minute))
	require.False(t, flood)
	require.Len(t, g.pace, 1, "who is silent is forgotten")
}

func TestWords(t *testing.T) {
	t.Parallel()
	filter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct{ Text string }
		if json.NewDecoder(r.Body).Decode(&asked) != nil || asked.Text == "fail" {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]bool{"allow": !strings.Contains(asked.Text, "tank")})
	}))
	defer filter.Close()
	g := guard(t, Config{Words: []string{"Bad"}, Filter: filter.URL})
	for text, want := range map[string]bool{"a fox": true, "so bAD": false, "a tank": false, "fail": false} {
		require.Equal(t, want, g.Takes(t.Context(), text), text)
	}
}
