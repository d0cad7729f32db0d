package caddymodule

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
)

// lastLines have each word of the last version once, and the effect that it must have.
var lastLines = map[string]struct {
	lines  string
	effect func(config.Settings) any
	want   any
}{
	"max_body":        {"max_body 1MiB", func(s config.Settings) any { return s.MaxBody }, int64(1 << 20)},
	"body_memory":     {"body_memory 1MiB", func(s config.Settings) any { return s.BodyMemory }, int64(1 << 20)},
	"picture_memory":  {"memory 1GiB\npicture_memory 1MiB", func(s config.Settings) any { return s.PictureMemory }, int64(1 << 20)},
	"spool_size":      {"spool_size 1MiB", func(s config.Settings) any { return s.SpoolSize }, int64(1 << 20)},
	"overtaking":      {"overtaking off", func(s config.Settings) any { return s.Overtaking }, config.NoOvertaking},
	"short_first":     {"short_first 5s", func(s config.Settings) any { return s.ShortFirst }, 5 * time.Second},
	"tenant_weights":  {"tenant_weights {\nada 2\n}\ntenant_limits bob {\nweight 3\n}", func(s config.Settings) any { return s.TenantWeights }, map[string]float64{"ada": 2, "bob": 3}},
	"contact_timeout": {"contact_timeout 5s", func(s config.Settings) any { return s.ContactTimeout }, 5 * time.Second},
	"catalog_age":     {"catalog_age 5s", func(s config.Settings) any { return s.CatalogAge }, 5 * time.Second},
	"a1111_api":       {"a1111_api off", func(s config.Settings) any { return s.NoA1111API }, true},

	"tenant_limits queue_size":     {"tenant_limits ada bob {\nqueue_size 1MiB\n}", func(s config.Settings) any { return s.TenantLimitsOf["bob"].QueueSize }, int64(1 << 20)},
	"tenant_limits sockets":        {"tenant_limits {\nsockets 5\n}\ntenant_limits ada {\nsockets 6\n}", func(s config.Settings) any { return s.TenantLimits.Sockets }, 5},
	"tenant_limits history":        {"tenant_limits {\nhistory 5\n}", func(s config.Settings) any { return s.TenantLimits.History }, 5},
	"tenant_limits userdata":       {"tenant_limits {\nuserdata 1MiB\n}", func(s config.Settings) any { return s.TenantLimits.Userdata }, int64(1 << 20)},
	"tenant_limits userdata_files": {"tenant_limits {\nuserdata_files 5\n}", func(s config.Settings) any { return s.TenantLimits.UserdataFiles }, 5},
	"tenant_limits input_files":    {"tenant_limits {\ninput_files 5\n}", func(s config.Settings) any { return s.TenantLimits.InputFiles }, 5},
}

// Words of the last version have their effect, in a Caddyfile as in the JSON that it
// becomes, and one line names each.
func TestLastWords(t *testing.T) {
	t.Parallel()
	for name, tc := range lastLines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := provisioned(t, fmt.Sprintf("{\ncomfyhub {\ndata %s\n%s\n}\n}\nhttp://:8188 {\nbind 127.0.0.1\ncomfyhub\n}\n", t.TempDir(), tc.lines))
			require.Equal(t, tc.want, tc.effect(app.settings))
			doubts := app.doubts()
			require.Len(t, doubts, 1, "%v", doubts)
			require.Equal(t, name+" is a word of the last version, and ends with the next", doubts[0].Says)
		})
	}
	count := 0
	for _, config := range []any{LastWords{}, LastLimits{}} {
		count += reflect.TypeOf(config).NumField()
	}
	require.Len(t, lastLines, count, "each word has its line")
}

// The words that took their place.
func TestMemoryAndUploads(t *testing.T) {
	t.Parallel()
	app := provisioned(t, fmt.Sprintf("{\ncomfyhub {\ndata %s\nmemory 5GiB\nmax_upload 1GiB\n}\n}\nhttp://:8188 {\nbind 127.0.0.1\ncomfyhub\n}\n", t.TempDir()))
	require.Empty(t, app.doubts())
	s := app.settings
	require.EqualValues(t, 2<<30, s.BodyMemory)
	require.EqualValues(t, 3<<30, s.PictureMemory)
	require.EqualValues(t, 1<<30, s.MaxUpload)
	require.EqualValues(t, 100<<20, s.MaxBody, "a prompt is not as large as a video")
	require.EqualValues(t, 1<<10, (&App{MaxUpload: 1 << 10}).hubSettings().MaxBody)
}
