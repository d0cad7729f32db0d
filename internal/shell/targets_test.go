package shell

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/redis"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestTargets(t *testing.T) {
	t.Parallel()
	var list []Instance
	for _, name := range []string{"studio-1", "studio-2", "studio-10", "studio-b", "attic", "attic-1"} {
		list = append(list, Instance{Name: name})
	}
	for argument, want := range map[string]string{
		"studio-1": "studio-1", "studio": "studio-1 studio-2 studio-10", "attic": "attic", "studio-*": "studio-1 studio-2 studio-10 studio-b",
		"*-1": "studio-1 attic-1", "studio-?": "studio-1 studio-2 studio-b", "cellar": "", "studi": "", "studio-": "",
	} {
		found, err := targetsOf(list, argument)
		require.NoError(t, err, argument)
		var names []string
		for _, i := range found {
			names = append(names, i.Name)
		}
		require.Equal(t, want, strings.Join(names, " "), argument)
	}
	for argument, says := range map[string]string{"cellar-*": "no instance fits", "studio-[": "no pattern"} {
		_, err := targetsOf(list, argument)
		require.ErrorContains(t, err, says)
	}
	gone := &Refusal{Status: 404, Detail: "no instance"}
	require.ErrorContains(t, unknown(list, "atitc", gone), "did you mean attic?")
	require.ErrorContains(t, unknown(list, "stduio", gone), "did you mean studio?")
	require.ErrorIs(t, unknown(list, "atitc", gone), gone)
	require.Equal(t, error(gone), unknown(list, "cellar", gone))
}

// A command asks once before it interrupts work or touches several instances, and never otherwise.
func TestAskOnce(t *testing.T) {
	t.Parallel()
	busy, idle := Instance{Name: "a", State: "busy"}, Instance{Name: "b", State: "idle"}
	for _, c := range []struct {
		o     operation
		found []Instance
		asks  string
	}{
		{operation{verb: "drain"}, []Instance{busy}, ""},
		{operation{verb: "drain", deadline: "10m"}, []Instance{idle}, ""},
		{operation{verb: "drain", deadline: "10m"}, []Instance{busy}, "drain a? What still runs on a after 10m begins again elsewhere."},
		{operation{verb: "drain"}, []Instance{busy, idle}, "drain a, b?"},
		{operation{verb: "restart"}, []Instance{idle}, "restart b?"},
		{operation{verb: "restart"}, []Instance{idle, busy}, "restart b, a? What runs on a begins again elsewhere."},
		{operation{verb: "forget"}, []Instance{idle}, ""},
	} {
		require.Equal(t, c.asks, c.o.warning(c.found))
		for answer, goes := range map[string]bool{"y\n": true, "YES\n": true, "n\n": false, "\n": false, "": false} {
			cmd := &cobra.Command{}
			cmd.SetIn(strings.NewReader(answer))
			out := &bytes.Buffer{}
			cmd.SetErr(out)
			err := c.o.agreed(cmd, c.found)
			require.Equal(t, goes || c.asks == "", err == nil, "%s %q", c.asks, answer)
			require.Equal(t, c.asks != "", strings.HasPrefix(out.String(), c.o.verb), out.String())
		}
		// Nobody is there to be asked.
		nobody := must.Get(os.Open(os.DevNull))(t)
		defer nobody.Close()
		cmd := &cobra.Command{}
		cmd.SetIn(nobody)
		err := c.o.agreed(cmd, c.found)
		var known *coded
		alone := c.o.verb == "drain" && len(c.found) == 1
		require.Equal(t, c.asks != "" && !alone, errors.As(err, &known) && known.code == ExitUsage, c.asks)
		c.o.yes = true
		require.NoError(t, c.o.agreed(cmd, c.found))
	}
}

// A site without TLS is a warning, but on this machine; one whose certificate nobody trusts
// is an error.
func TestCheckSite(t *testing.T) {
	t.Parallel()
	untrusted := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(untrusted.Close)
	for site, level := range map[string]string{
		"http://hub.example.com": "warning", "http://10.0.0.2:8188": "warning", "http://localhost:8188": "ok",
		"http://[::1]:8188": "ok", "http://127.0.0.1:8188": "ok", untrusted.URL: "error", "https://127.0.0.1:1": "error", "http://%": "error",
	} {
		f := checkSite(t.Context(), site)
		require.Equal(t, level, f.Level, "%s: %s", site, f.Says)
		require.Equal(t, "site", f.About)
		require.NotEmpty(t, f.Says)
	}
}

// Names are found by id or by name, and taken back one after the other.
func TestTrash(t *testing.T) {
	t.Parallel()
	now := time.Now().Unix()
	of := func(id, tenant, name, why string) trashed {
		return trashed{ID: id, Tenant: tenant, Type: "input", Subfolder: "a", Filename: name, Size: 7, Why: why, Since: now - 7200, Until: now + 86400*6 + 60}
	}
	trash := []trashed{of("1", "ann", "fox.png", "overwritten"), of("2", "ann", "fox.png", "overwritten"), of("3", "bob", "\x1b[2Jowl.png", "unused"), of("4", "bob", "fox.png", "unused")}
	var back []string
	admin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if r.URL.Path != "/comfyhub/trash" {
			http.NotFound(w, r)
			return
		}
		if r.Method == http.MethodPost {
			back = append(back, query.Get("tenant")+" "+query.Get("id"))
		}
		shown := []trashed{}
		for _, one := range trash {
			if tenant := query.Get("tenant"); tenant == "" || tenant == one.Tenant {
				shown = append(shown, one)
			}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"all": len(shown) + 1, "trash": shown})
	}))
	t.Cleanup(admin.Close)
	ask := func(args ...string) result {
		t.Helper()
		return call(t, "", append(args, "--address", admin.Listener.Addr().String())...)
	}
	r := ask("trash", "list")
	require.Zero(t, r.code, r.errors)
	require.Contains(t, r.out, "input/a/fox.png")
	require.Contains(t, r.out, "2h ago")
	require.Contains(t, r.out, "and 1 older ones")
	require.NotContains(t, r.out, "\x1b")

	require.Zero(t, ask("trash", "restore", "3", "input/a/fox.png", "--tenant", "bob").code)
	require.Zero(t, ask("trash", "restore", "--tenant", "ann", "input/a/fox.png").code)
	require.Equal(t, []string{"bob 3", "bob 4", "ann 1"}, back)
	for text, args := range map[string][]string{
		"several tenants": {"input/a/fox.png"}, "not in the trash": {"input/fox.png"},
	} {
		r = ask(append([]string{"trash", "restore"}, args...)...)
		require.Equal(t, ExitFailed, r.code)
		require.Contains(t, r.errors, text)
	}
	require.Equal(t, ExitUsage, ask("trash", "restore").code)
	require.Equal(t, ExitUsage, ask("trash", "list", "--limit", "0").code)
	require.Len(t, back, 3)
}

var noteScript = redis.NewScript("note", redis.Durable, "write('RPUSH', key('notes'), ARGV[1]) return {'ok'}")

// The hub names the command that repairs a damaged journal, and the command does so.
func TestRepairJournal(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	journal := filepath.Join(dir, "queue.aof")
	require.Equal(t, ExitUsage, call(t, "", "repair-journal", dir).code, "there is none")
	db := redistest.OpenDir(t, dir)
	var ends []int64
	for _, note := range []string{"one", "two", "three"} {
		_, err := db.Run(t.Context(), noteScript, note+strings.Repeat(" ", 200))
		require.NoError(t, err)
		info := must.Get(os.Stat(journal))(t)
		ends = append(ends, info.Size())
	}
	r := call(t, "", "repair-journal", dir)
	require.Equal(t, ExitUsage, r.code, "a hub has it")
	require.NoError(t, db.Close())
	r = call(t, "", "repair-journal", dir)
	require.Zero(t, r.code, r.errors)
	require.Equal(t, "the journal is well\n", r.out)

	whole, err := os.ReadFile(journal)
	require.NoError(t, err)
	clear(whole[ends[0]+4 : ends[0]+14])
	require.NoError(t, os.WriteFile(journal, whole, 0o600))
	_, err = redis.Open(t.Context(), redis.Options{URL: redis.Embedded, Dir: dir})
	require.ErrorContains(t, err, "comfyhub repair-journal")
	r = call(t, "", "repair-journal", dir)
	require.Zero(t, r.code, r.errors)
	require.Contains(t, r.out, "queue.aof.damaged has all of it")
	kept := must.Get(os.ReadFile(journal + ".damaged"))(t)
	require.Equal(t, whole, kept)
	db = redistest.OpenDir(t, dir)
	notes := must.Get(db.Client().LRange(t.Context(), db.Key("notes"), 0, -1).Result())(t)
	require.Len(t, notes, 1)
	require.NoError(t, db.Close())
}
