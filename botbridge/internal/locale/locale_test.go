package locale

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/testing/must"
)

func TestEveryLanguageSaysEverything(t *testing.T) {
	t.Parallel()
	b := must.Get(Load(""))(t)
	require.Equal(t, []string{"en", "ru"}, b.Languages())
	value := regexp.MustCompile(`\{\w+\}`)
	for _, language := range b.Languages() {
		require.Equal(t, b.Keys(Default), b.Keys(language))
		for _, key := range b.Keys(language) {
			want := value.FindAllString(b.Say(Default, key, nil), -1)
			got := value.FindAllString(b.Say(language, key, nil), -1)
			slices.Sort(want)
			slices.Sort(got)
			require.Equal(t, want, got, "%s %s", language, key)
		}
	}
}

func TestMoreLanguages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "de.yaml"), []byte("language: Deutsch\nsaved: Gespeichert."), 0o600))
	for _, name := range []string{"zh", "pt-BR", "pirate speak"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte("saved: x"), 0o600))
	}
	b := must.Get(Load(dir))(t)
	for tag, want := range map[string]string{
		"de": "de", "de-AT": "de", "DE_at": "de", "ru-RU": "ru", "en-GB": "en",
		"": "en", "xx": "en", "uk": "en", "no such tag": "en",
		"zh-TW": "zh", "zh-Hans-CN": "zh", "pt-br": "pt-BR", "pt": "pt-BR", "pirate speak": "pirate speak",
	} {
		require.Equal(t, want, b.Match(tag), tag)
	}
	require.Equal(t, "Gespeichert.", b.Say("de", "saved", nil))
	require.Equal(t, "Stopping…", b.Say("de", "cancelling", nil), "what it lacks is said in English")
	require.Equal(t, "That's too long: {max} characters at most.", b.Say("en", "too_long", nil))
	require.Equal(t, "There's no {flag} {flag}. /{command} takes {flags}.",
		b.Say("en", "flag_unknown", With{"flag": "{flag} {flag}"}), "what a person wrote is not filled in again")
}

func TestPlurals(t *testing.T) {
	t.Parallel()
	b := must.Get(Load(""))(t)
	for n, want := range map[int][2]string{
		1: {"Sending to 1 chat.", "Рассылаю в 1 чат."}, 2: {"Sending to 2 chats.", "Рассылаю в 2 чата."}, 5: {"Sending to 5 chats.", "Рассылаю в 5 чатов."},
		11: {"Sending to 11 chats.", "Рассылаю в 11 чатов."}, 21: {"Sending to 21 chats.", "Рассылаю в 21 чат."}, 0: {"Sending to 0 chats.", "Рассылаю в 0 чатов."},
	} {
		require.Equal(t, want[0], b.Say("en", "broadcasting", With{"n": n}))
		require.Equal(t, want[1], b.Say("ru", "broadcasting", With{"n": int64(n)}))
	}
	require.Equal(t, "I'm making it right now.", b.Say("en", "why_running", With{"attempt": 1}))
	require.Equal(t, "I'm making it right now; an earlier try failed.", b.Say("en", "why_running", With{"attempt": 2}))
}

func TestCheckNamesHolesAndTypos(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"de": "language: Deutsch\nsavd: Gespeichert.\ntoo_long: Zu lang.", "pirate speak": "saved: Aye.", "fr": "saved: [", "ru": "saved: Записано.",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600))
	}
	problems, notes := Check(dir)
	all := strings.Join(problems, "\n")
	for _, want := range []string{
		`de.yaml: there is no text with the key "savd"`, "de.yaml: too_long: the values must be [max], not []", "fr.yaml: ", "pirate speak.yaml: the name is not a language",
	} {
		require.Contains(t, all, want)
	}
	require.NotContains(t, all, "ru.yaml")

	require.NoError(t, os.WriteFile(filepath.Join(dir, "nl.yaml"), []byte("oops: "+strings.Repeat("x", 5000)+"\non_it: "+strings.Repeat("x", 300)), 0o600))
	long, _ := Check(dir)
	require.Contains(t, strings.Join(long, "\n"), "nl.yaml: oops: 5000 characters; Telegram takes 4096 there")
	require.Contains(t, strings.Join(long, "\n"), "nl.yaml: on_it: 300 characters; Telegram takes 200 there")
	require.Len(t, notes, 2, "of German and of the pirates, but not of Russian, which is built in")
	require.Contains(t, notes[0], "saved")
}
