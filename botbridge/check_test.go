package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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
	go func() {
		defer close(served)
		_ = server.Serve(ctx, listener)
	}()
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
	write("odd.json", `{"1": {"class_type": "NodeOfNobody", "inputs": {}}}`)
	write("ui.json", `{"nodes": []}`)
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer hub.Close()
	t.Setenv("COMFYHUB_BOT_HUB", hub.URL)
	out, err := check(t, filepath.Join(dir, "bot.yaml"))
	require.ErrorIs(t, err, errProblems)
	for _, want := range []string{
		"no instance has the node class NodeOfNobody", "no node gives a result", "command gone", "telegram: token:", "redis:", "waiting: -1 is below zero",
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
