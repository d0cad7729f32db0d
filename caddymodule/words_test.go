package caddymodule

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/config"
	"github.com/comfyhub/comfyhub/internal/scale"
	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestDrainDeadline(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"90": 90 * time.Second, "1.5": 1500 * time.Millisecond, "10m": 10 * time.Minute, "1d": 24 * time.Hour, "30d": maxDeadline,
		"": 0, "0": 0, "-5": 0, "soon": 0, "31d": 0, "1e300": 0, "NaN": 0, "Inf": 0, "1us": 0,
	} {
		got, err := drainDeadline(text)
		require.Equal(t, want, got, text)
		require.Equal(t, want == 0, err != nil, text)
	}
}

func TestPreemptHasADefault(t *testing.T) {
	t.Parallel()
	var a App
	require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser("comfyhub {\npreempt bulk\n}")))
	require.Equal(t, caddy.Duration(5*time.Second), a.PreemptBulk)
	require.Equal(t, 5*time.Second, a.hubSettings().PreemptBulk)
}

func TestScaleOfACaddyfile(t *testing.T) {
	t.Setenv("TEST_SCALE_SECRET", "sixteen bytes or more")
	var a App
	require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`comfyhub {
		scale a10g {
			instances gpu-* cloud-*
			min 0
			max 4
			idle_after 10m
			price 1.2/h
			budget 20/day
			provider exec /usr/local/bin/machines --zone a
		}
		scale cpu {
			max 1
			provider webhook https://machines.example.com/cpu {env.TEST_SCALE_SECRET}
		}
	}`)))
	require.NoError(t, a.resolve(caddy.NewReplacer()))
	require.NoError(t, a.check())
	require.Equal(t, []scale.Class{
		{
			Name: "a10g", Instances: []string{"gpu-*", "cloud-*"}, Max: 4, IdleAfter: 10 * time.Minute, Price: 1.2, Budget: 20,
			Provider: scale.Exec{Command: []string{"/usr/local/bin/machines", "--zone", "a"}},
		},
		{Name: "cpu", Instances: []string{"cpu-*"}, Max: 1, IdleAfter: 5 * time.Minute, Provider: scale.Webhook{URL: "https://machines.example.com/cpu", Secret: "sixteen bytes or more"}},
	}, a.hubSettings().Scale)
}

func TestOverflowOfACaddyfile(t *testing.T) {
	t.Setenv("TEST_RUNPOD_KEY", "a key")
	info := filepath.Join(t.TempDir(), "object_info.json")
	require.NoError(t, os.WriteFile(info, []byte(`{}`), 0o600))
	t.Setenv("TEST_OBJECT_INFO", info)
	var a App
	require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser(`comfyhub {
		overflow runpod {
			endpoint abc123
			key {env.TEST_RUNPOD_KEY}
			after 45s
			budget 20/day
			price 0.00031/s
			max 4
			only class_type KSampler CLIP*
			private inputs secrets
			object_info {env.TEST_OBJECT_INFO}
			files_from bucket.example.com
		}
		overflow http {
			url https://gpus.example.com/comfy
		}
	}`)))
	require.NoError(t, a.resolve(caddy.NewReplacer()))
	require.NoError(t, a.check())
	require.Equal(t, []config.Overflow{
		{
			Name: "abc123", RunPod: "abc123", Key: "a key", After: 45 * time.Second, Budget: 20, Price: 0.00031, Max: 4, Timeout: 10 * time.Minute,
			Only: []string{"KSampler", "CLIP*"}, Inputs: true, Secrets: true, ObjectInfo: []byte(`{}`), FilesFrom: hostsOf([]string{"bucket.example.com"}),
		},
		{Name: "gpus.example.com", URL: "https://gpus.example.com/comfy", After: 30 * time.Second, Max: 1, Timeout: 10 * time.Minute, FilesFrom: hostsOf([]string{"*"})},
	}, a.hubSettings().Overflow)
}

func TestOverflowThatIsWrong(t *testing.T) {
	t.Parallel()
	for lines, why := range map[string]string{
		"overflow":                                                                                "overflow takes runpod or http",
		"overflow runpod":                                                                         "overflow takes a block",
		"overflow modal {\nmax 1\n}":                                                              `"modal" is not one of runpod, http`,
		"overflow runpod {\nmax 1\n}":                                                             "runpod takes an endpoint",
		"overflow runpod {\nendpoint a\n}":                                                        "runpod needs a key",
		"overflow runpod {\nendpoint a\nkey secret\n}":                                            "key",
		"overflow runpod {\nendpoint a/b\nkey {env.A}\n}":                                         "is not the id of an endpoint",
		"overflow http {\nendpoint a\n}":                                                          "http takes a url",
		"overflow http {\nurl http://a.example.com\n}":                                            "not https",
		"overflow http {\nurl https://a.example/\nbudget 1/day\n}":                                "budget needs a price",
		"overflow http {\nurl https://a.example/\nmax 65\n}":                                      "max: want 1 to 64",
		"overflow http {\nurl https://a.example/\ntimeout 5s\n}":                                  "timeout: want 6s",
		"overflow http {\nurl https://a.example/\nonly A\n}":                                      "only takes class_type",
		"overflow http {\nurl https://a.example/\nprivate everything\n}":                          `"everything" is not one of inputs, secrets`,
		"overflow http {\nurl https://a.example/\n}\noverflow http {\nurl https://a.example/b\n}": "a.example is given twice",
	} {
		var a App
		err := a.UnmarshalCaddyfile(caddyfile.NewTestDispenser("comfyhub {\n" + lines + "\n}"))
		require.ErrorContains(t, err, why, lines)
	}
}

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

func TestLogsFollowTheConfiguration(t *testing.T) {
	t.Parallel()
	plain := func(w *bytes.Buffer, level slog.Level) slog.Handler {
		return slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})
	}
	var first, second bytes.Buffer
	var logs logSwitch
	logs.use(plain(&first, slog.LevelInfo))

	part := logs.logger().With("part", "queue").WithGroup("job")
	one, other := part.With("key", 1), part.With("key", 2)
	one.Debug("unseen")
	one.Info("before")
	require.Equal(t, "level=INFO msg=before part=queue job.key=1\n", first.String())

	logs.use(plain(&second, slog.LevelDebug))
	one.Debug("after")
	other.Info("after")
	require.Equal(t, "level=DEBUG msg=after part=queue job.key=1\nlevel=INFO msg=after part=queue job.key=2\n", second.String())
	require.Equal(t, 1, bytes.Count(first.Bytes(), []byte("\n")))
}

// TestReference holds the tables of docs/caddyfile.md against the fields that they are made of.
// With -update it writes them.
func TestReference(t *testing.T) {
	t.Parallel()
	const path = "../docs/caddyfile.md"
	content := must.Get(os.ReadFile(path))(t)
	page := string(content)
	types := structs(t)
	for name, table := range map[string]string{
		"fleet": table(types, "App", ""), "site": table(types, "Handler", ""), "last": lastTable(),
	} {
		start, end := "<!-- words: "+name+" -->\n", "<!-- end -->\n"
		before, rest, ok := strings.Cut(page, start)
		require.True(t, ok, name)
		_, after, ok := strings.Cut(rest, end)
		require.True(t, ok, name)
		page = before + start + table + end + after
	}
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(page), 0o644))
		return
	}
	require.Equal(t, page, string(content), "go test ./caddymodule -run TestReference -update writes the tables")
}

// source is a struct of this package, and the file that it is in.
type source struct {
	*ast.StructType
	file *ast.File
}

// structs are the structs of this package by name.
func structs(t *testing.T) map[string]source {
	t.Helper()
	found := map[string]source{}
	paths := must.Get(filepath.Glob("*.go"))(t)
	for _, path := range paths {
		file := must.Get(parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments))(t)
		for node := range ast.Preorder(file) {
			if spec, ok := node.(*ast.TypeSpec); ok {
				if s, ok := spec.Type.(*ast.StructType); ok {
					found[spec.Name.Name] = source{s, file}
				}
			}
		}
	}
	return found
}

// header begins a table.
const header = "\n| word | meaning | default |\n| --- | --- | --- |\n"

// table describes the words of a struct. within is the word of a block that it is.
func table(types map[string]source, name, within string) string {
	var text strings.Builder
	from := types[name].Pos()
	if within == "" && !slices.ContainsFunc(types[name].file.Comments, func(c *ast.CommentGroup) bool { return strings.HasPrefix(c.Text(), "# ") }) {
		text.WriteString(header)
	}
	for _, field := range types[name].Fields.List {
		for _, comment := range types[name].file.Comments {
			if title, ok := strings.CutPrefix(comment.Text(), "# "); ok && comment.Pos() > from && comment.Pos() < field.Pos() {
				fmt.Fprintf(&text, "\n### %s\n%s", strings.TrimSpace(title), header)
			}
		}
		from = field.Pos()
		if field.Tag == nil {
			continue
		}
		tag, _ := strconv.Unquote(field.Tag.Value)
		syntax := reflect.StructTag(tag).Get("word")
		if _, last := reflect.StructTag(tag).Lookup("now"); syntax == "" || last {
			continue
		}
		if pointer, ok := field.Type.(*ast.StarExpr); ok && !strings.Contains(syntax, "{") {
			if block, ok := pointer.X.(*ast.Ident); ok {
				text.WriteString(table(types, block.Name, syntax))
				continue
			}
		}
		if within != "" {
			syntax = within + " { " + syntax + " }"
		}
		says, fallback, _ := strings.Cut(strings.Join(strings.Fields(field.Doc.Text()), " "), "Default: ")
		fmt.Fprintf(&text, "| `%s` | %s | %s |\n", strings.ReplaceAll(syntax, "|", `\|`), linked(says), linked(fallback))
	}
	return text.String()
}

// lastTable is the table of the words of the last version.
func lastTable() string {
	text := "\n| word | now |\n| --- | --- |\n"
	for _, config := range []any{LastWords{}, LastLimits{}, Handler{}} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(config)) {
			now, last := f.Tag.Lookup("now")
			if !last {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("word"), " ")
			if _, limit := config.(LastLimits); limit {
				name = "tenant_limits { " + name + " }"
			}
			if now = "`" + now + "`"; now == "``" {
				now = "no longer needed"
			}
			text += fmt.Sprintf("| `%s` | %s |\n", name, now)
		}
	}
	return text
}

// links finds the pages that a comment names.
var links = regexp.MustCompile(`docs/([a-z0-9-]+\.md)(#[a-z0-9-]+)?`)

// linked is the text of a comment as a cell of a table has it.
func linked(text string) string {
	return strings.TrimSuffix(strings.TrimSpace(links.ReplaceAllString(text, "[$1]($1$2)")), ".")
}

// TestSettingsReachTheHub sees that no field of a word is lost on its way to the hub because the
// hub's field has another name.
func TestSettingsReachTheHub(t *testing.T) {
	t.Parallel()
	named := map[string]string{
		"History": "HistoryEntries", "Secret": "Secrets", "Reserve": "Reserved", "Order": "FIFO", "A1111API": "NoA1111API", "Callbacks": "CallbackHosts", "Gossip": "Join", "Memory": "BodyMemory",
		"Split": "NoSplit", "QueuePanel": "NoQueuePanel",
	}
	fields := map[string]bool{}
	app := new(App)
	for _, of := range []any{app.hubSettings(), app.hubIdentity()} {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(of)) {
			fields[f.Name] = true
		}
	}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(*app)) {
		if f.Tag.Get("word") != "" && f.Name != "KEDA" { // whom this package answers
			name := f.Name
			if other, ok := named[name]; ok {
				name = other
			}
			require.Contains(t, slices.Collect(maps.Keys(fields)), name)
		}
	}
}

// One tenant can be without a result cache that all others have, and the other way round.
func TestResultCache(t *testing.T) {
	t.Parallel()
	a := new(App)
	text := "comfyhub {\ntenant_limits {\nresult_cache on\n}\ntenant_limits ada {\nresult_cache off\n}\ntenant_limits bob {\nresult_cache 10m\n}\ntenant_limits eve {\nwaiting 1\n}\n}"
	require.NoError(t, a.UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)))
	s := a.hubSettings()
	for tenant, age := range map[string]time.Duration{"ada": -1, "bob": 10 * time.Minute, "eve": 24 * time.Hour} {
		require.Equal(t, age, s.TenantLimits.But(s.TenantLimitsOf[tenant]).ResultCache, tenant)
	}
	require.Zero(t, new(App).hubSettings().TenantLimits.ResultCache, "off by default")
}
