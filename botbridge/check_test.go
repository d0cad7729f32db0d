package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakebot"
	"github.com/comfyhub/comfyhub/botbridge/internal/testing/fakellm"
	"github.com/comfyhub/comfyhub/internal/sim"
)

// check runs "botbridge check" and returns what it prints.
func check(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := root()
	cmd.SetOut(&out)
	cmd.SetArgs(append([]string{"check"}, args...))
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

func TestCheckOfTheExample(t *testing.T) {
	server, err := sim.New(sim.Config{Models: map[string][]string{"checkpoints": {"v1-5-pruned-emaonly-fp16.safetensors"}}})
	require.NoError(t, err)
	defer server.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(ctx, listener) }()
	defer func() { <-served }()
	defer cancel()
	t.Setenv("COMFYHUB_BOT_HUB", "http://"+listener.Addr().String())

	telegram := httptest.NewServer(fakebot.New(fakebot.Options{}))
	defer telegram.Close()
	t.Setenv("COMFYHUB_BOT_SERVER", telegram.URL)
	t.Setenv("COMFYHUB_BOT_TOKEN", fakebot.Token)

	out, err := check(t, filepath.Join("..", "examples", "bot", "bot.yaml"))
	require.NoError(t, err, out)
	require.Contains(t, out, "seed      seed of node 3 (KSampler)  [guessed]")
	require.Contains(t, out, "seed      color of node 1 (Colour)\n", "what is said is not marked")
	require.NotContains(t, out, "PROBLEM")
	require.Contains(t, out, "the bot is @"+fakebot.Username)

	t.Setenv("COMFYHUB_BOT_TOKEN", "4242:")
	out, err = check(t, filepath.Join("..", "examples", "bot", "bot.yaml"))
	require.ErrorIs(t, err, errProblems)
	require.Equal(t, 1, strings.Count(out, "PROBLEM"), out)
	require.Contains(t, out, "this is not a token from BotFather")

	t.Setenv("COMFYHUB_BOT_TOKEN", "4242:another-token")
	out, err = check(t, filepath.Join("..", "examples", "bot", "bot.yaml"))
	require.ErrorIs(t, err, errProblems)
	require.Contains(t, out, "Telegram knows no bot with this token")
}

func TestCheckFindsProblems(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("bot.yaml", `
telegram: {token: {file: gone}}
redis: "redis:/nowhere"
limits: {waiting: -1}
default_edit_command: odd
commands:
  odd: {workflow: odd.json}
  gone: {workflow: gone.json}
  ui: {workflow: ui.json}
`)
	fleet := "{}"
	write("odd.json", `{"1": {"class_type": "NodeOfNobody", "inputs": {}}}`)
	write("ui.json", `{"nodes": []}`)
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/hub/jobs/") && r.Header.Get("Authorization") == "Bearer wrong" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write([]byte(fleet))
	}))
	defer hub.Close()
	t.Setenv("COMFYHUB_BOT_HUB", hub.URL)
	out, err := check(t, filepath.Join(dir, "bot.yaml"))
	require.ErrorIs(t, err, errProblems)
	require.Contains(t, out, "no ComfyUI server is online yet")
	require.NotContains(t, out, "NodeOfNobody", "one cause is said once")
	t.Setenv("COMFYHUB_BOT_HUB_KEY", "wrong")
	out, err = check(t, filepath.Join(dir, "bot.yaml"))
	require.ErrorIs(t, err, errProblems)
	require.Contains(t, out, "hub_key: the hub does not accept it")
	t.Setenv("COMFYHUB_BOT_HUB_KEY", "right")
	fleet = `{"NodeOfSomebody": {"input": {}}}`
	out, err = check(t, filepath.Join(dir, "bot.yaml"))
	require.ErrorIs(t, err, errProblems)
	require.NotContains(t, out, "hub_key")
	for _, want := range []string{
		"no instance has the node class NodeOfNobody", "no node gives a result", "command gone", "telegram: token:", "redis:", "waiting: -1 is negative",
		"default_edit_command: odd does not make something from a picture and words", "command ui: workflow: this is a workflow of the web UI",
	} {
		require.Contains(t, out, want)
	}
	t.Setenv("COMFYHUB_BOT_HUB", "http://127.0.0.1:1")
	out, err = check(t, filepath.Join(dir, "bot.yaml"))
	require.ErrorIs(t, err, errProblems)
	require.Contains(t, out, "hub: ")
}

// The endpoint for better words is asked, unless nobody is to be.
func TestCheckAsksForBetterWords(t *testing.T) {
	fake, err := fakellm.New()
	require.NoError(t, err)
	endpoint := httptest.NewServer(fake)
	defer endpoint.Close()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer hub.Close()
	t.Setenv("COMFYHUB_BOT_HUB", hub.URL)
	t.Setenv("BOT_TEST_SECRET", fakellm.Key)
	path := filepath.Join(t.TempDir(), "bot.yaml")
	for model, want := range map[string]string{fakellm.Model: "", "another": "it does not know the model"} {
		text := "enhance: {url: " + endpoint.URL + "/v1, model: " + model + ", key: {env: BOT_TEST_SECRET}}\n"
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		calls := len(fake.Calls())
		out, err := check(t, path)
		require.ErrorIs(t, err, errProblems) // there is no platform
		require.Len(t, fake.Calls(), calls+1)
		if want == "" {
			require.NotContains(t, out, "enhance")
		}
		require.Contains(t, out, want)
		require.NotContains(t, out, fakellm.Key)
		_, err = check(t, path, "--offline")
		require.ErrorIs(t, err, errProblems)
		require.Len(t, fake.Calls(), calls+1)
	}
}

// Each mistake in bot.yaml is one problem: one line, with the file, the line in it, and what
// to do. Most are found without asking anybody.
func TestEachMistakeIsOneProblem(t *testing.T) {
	graph, err := os.ReadFile(filepath.Join("..", "examples", "bot", "generate.json"))
	require.NoError(t, err)
	t.Setenv("COMFYHUB_BOT_TOKEN", fakebot.Token)
	t.Setenv("BOT_TEST_SECRET", "abcdefghijklmnop")
	const usual = "telegram: {}\ncommands: {generate: {workflow: generate.json}}\n"
	for name, c := range map[string]struct{ text, want string }{
		"nothing":             {"", "bot.yaml: the file is empty"},
		"no platform":         {"commands: {generate: {workflow: generate.json}}\n", "bot.yaml: no chat platform is configured"},
		"no commands":         {"telegram: {}\n", "bot.yaml: commands: there are none"},
		"a word of nothing":   {usual + "colour: red\n", `bot.yaml:3: there is no option "colour"`},
		"a typo":              {usual + "deliverry: edit\n", `bot.yaml:3: there is no option "deliverry"; did you mean delivery?`},
		"a typo in a command": {"telegram: {}\ncommands:\n  generate:\n    worflow: generate.json\n", `bot.yaml:4: command generate: there is no option "worflow"; did you mean workflow?`},
		"too little indent":   {"telegram: {}\ncommands:\n  generate:\n  workflow: generate.json\n", `bot.yaml:4: "workflow" is an option of a command: indent it more than the command's name`},
		"no indent":           {"telegram: {}\ncommands:\n  generate:\nworkflow: generate.json\n", `bot.yaml:4: there is no option "workflow" here; it belongs to a command: is the indentation right?`},
		"another section's":   {usual + "webhook: https://bot.example.com/telegram/webhook\n", `bot.yaml:3: there is no option "webhook" here; it belongs to telegram: is the indentation right?`},
		"a tab":               {"telegram: {}\ncommands:\n\tgenerate: {workflow: generate.json}\n", "bot.yaml:3: indent with spaces, not with tabs"},
		"text for a number":   {usual + "limits: {waiting: many}\n", `bot.yaml:3: "many" must be a whole number`},
		"below zero":          {"telegram: {}\ncommands:\n  generate:\n    workflow: generate.json\n    max_count: -1\n", "bot.yaml:5: command generate: max_count: -1 is negative"},
		"steps below zero":    {"telegram: {}\ncommands:\n  generate:\n    workflow: generate.json\n    max_steps: -1\n", "bot.yaml:5: command generate: max_steps: -1 is negative"},
		"pixels below zero":   {"telegram: {}\ncommands:\n  generate: {workflow: generate.json, max_pixels: -1}\n", "bot.yaml:3: command generate: max_pixels: -1 is negative"},
		"a price below zero":  {"telegram: {}\ncommands:\n  generate:\n    workflow: generate.json\n    price: -2\n", "bot.yaml:5: command generate: price: -2 is negative"},
		"no workflow":         {"telegram: {}\ncommands:\n  generate: {}\n", "bot.yaml:3: command generate: workflow: no file is named"},
		"no such workflow":    {"telegram: {}\ncommands:\n  generate:\n    workflow: gone.json\n", "bot.yaml:4: command generate: workflow: there is no file "},
		"a saved workflow":    {"telegram: {}\ncommands:\n  generate:\n    workflow: ui.json\n", "bot.yaml:4: command generate: workflow: this is a workflow of the web UI"},
		"a broken workflow":   {"telegram: {}\ncommands:\n  generate:\n    workflow: broken.json\n", "bot.yaml:4: command generate: workflow: "},
		"no such node":        {"telegram: {}\ncommands:\n  generate:\n    workflow: generate.json\n    inputs:\n      seed: 99\n", `bot.yaml:6: command generate: inputs: seed: no node has the id or the title "99"`},
		"no such role":        {"telegram: {}\ncommands:\n  generate:\n    workflow: generate.json\n    inputs: {colour: 5}\n", `bot.yaml:5: command generate: inputs: a message cannot set "colour"`},
		"a costly argument":   {"telegram: {}\ncommands:\n  generate:\n    workflow: generate.json\n    arguments:\n      wide: 5.width\n", `bot.yaml:6: command generate: arguments: wide:`},
		"several of what":     {"telegram: {}\ncommands:\n  generate:\n    workflow: generate.json\n    several: heap\n", `bot.yaml:5: command generate: several: "heap" is neither album nor grid`},
		"a name of the bot's": {"telegram: {}\ncommands:\n  help: {workflow: generate.json}\n", "bot.yaml:3: command help: the bridge has a command of that name itself"},
		"a bad name":          {"telegram: {}\ncommands:\n  Big-Name: {workflow: generate.json}\n", "bot.yaml:3: command Big-Name: a name has only a-z"},
		"a name twice":        {"telegram: {}\ncommands:\n  generate: {workflow: generate.json}\n  generate: {workflow: generate.json}\n", "bot.yaml:4: there is already a command generate, on line 3"},
		"no default":          {usual + "default_command: paint\n", `bot.yaml:3: default_command: there is no command "paint"`},
		"no edit command":     {usual + "default_edit_command: generate\n", "bot.yaml:3: default_edit_command: generate does not make"},
		"a secret":            {"telegram: {token: 123:abc}\ncommands: {generate: {workflow: generate.json}}\n", "bot.yaml:1: a secret is {env: VARIABLE} or {file: PATH}, never"},
		"no variable":         {"telegram:\n  token: {env: NOT_SET}\ncommands: {generate: {workflow: generate.json}}\n", "bot.yaml:2: telegram: token: the variable NOT_SET is not set"},
		"no token":            {"telegram:\n  token: {env: BOT_TEST_SECRET}\ncommands: {generate: {workflow: generate.json}}\n", "bot.yaml:2: telegram: token: this is not a token from BotFather"},
		"a port":              {"telegram:\n  webhook: https://bot.example.com:8080/telegram/webhook\n  webhook_secret: {env: BOT_TEST_SECRET}\ncommands: {generate: {workflow: generate.json}}\n", "bot.yaml:2: telegram: webhook: Telegram calls only the ports 443, 80, 88 and 8443"},
		"a path":              {"telegram:\n  webhook: https://bot.example.com/hook\n  webhook_secret: {env: BOT_TEST_SECRET}\ncommands: {generate: {workflow: generate.json}}\n", "bot.yaml:2: telegram: webhook: the address must end in /telegram/webhook"},
		"terms in Russian":    {usual + "terms:\n  ru: Правила\n", "bot.yaml:3: terms: en is missing"},
		"delivery":            {usual + "delivery: pigeon\n", `bot.yaml:3: delivery: "pigeon" is neither reply nor edit`},
		"a hub of nowhere":    {usual + "hub: hub\n", "bot.yaml:3: hub: this is not an address"},
		"webchat":             {usual + "webchat:\n  secret: {env: BOT_TEST_SECRET}\n  callback: https://chat.example/bridge\n", "bot.yaml:3: webchat: it needs files_url"},
		"a style of nothing":  {usual + "styles:\n  film: {about: film}\n", "bot.yaml:4: style film: it changes nothing"},
		"a price, no terms":   {"telegram: {}\npayments: {contact: me}\ncommands:\n  generate: {workflow: generate.json, stars: 3}\n", "bot.yaml: terms: missing"},
		"a redis of nowhere":  {usual + "redis: nowhere\n", "bot.yaml:3: redis: "},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{"bot.yaml": c.text, "generate.json": string(graph), "ui.json": `{"nodes": []}`, "broken.json": `{"1":`} {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			out, err := check(t, filepath.Join(dir, "bot.yaml"), "--offline")
			require.ErrorIs(t, err, errProblems)
			require.Equal(t, 1, strings.Count(out, "PROBLEM"), out)
			require.Contains(t, out, "PROBLEM  "+filepath.Join(dir, c.want))
		})
	}
}

// What only others know is asked, unless nobody is to be.
func TestCheckAsksRedisAndTheHub(t *testing.T) {
	telegram := httptest.NewServer(fakebot.New(fakebot.Options{}))
	defer telegram.Close()
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	defer hub.Close()
	t.Setenv("COMFYHUB_BOT_SERVER", telegram.URL)
	t.Setenv("COMFYHUB_BOT_TOKEN", fakebot.Token)
	dir := t.TempDir()
	path := filepath.Join(dir, "bot.yaml")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.json"), []byte(`{"1": {"class_type": "Text", "inputs": {}}}`), 0o600))
	require.NoError(t, os.WriteFile(path, []byte("telegram: {}\ncommands: {a: {about: a thing, workflow: a.json}}\nredis: redis://127.0.0.1:1/0\nhub: "+hub.URL+"\n"), 0o600))
	out, err := check(t, path)
	require.ErrorIs(t, err, errProblems)
	require.Equal(t, 2, strings.Count(out, "PROBLEM"), out)
	require.Contains(t, out, path+":3: redis: ")
	require.Contains(t, out, path+":4: hub: it does not accept the key of the bridge")
	out, err = check(t, path, "--offline")
	require.NoError(t, err, out)
}
