package locale

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryLanguageSaysEverything(t *testing.T) {
	t.Parallel()
	b, err := Load("")
	require.NoError(t, err)
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
	b, err := Load(dir)
	require.NoError(t, err)
	for tag, want := range map[string]string{
		"de": "de", "de-AT": "de", "DE_at": "de", "ru-RU": "ru", "en-GB": "en",
		"": "en", "xx": "en", "uk": "en", "no such tag": "en",
		"zh-TW": "zh", "zh-Hans-CN": "zh", "pt-br": "pt-BR", "pt": "pt-BR", "pirate speak": "pirate speak",
	} {
		require.Equal(t, want, b.Match(tag), tag)
	}
	require.Equal(t, "Gespeichert.", b.Say("de", "saved", nil))
	require.Equal(t, "Stopping.", b.Say("de", "cancelling", nil), "what it lacks is said in English")
	require.Equal(t, "That is too long for me: {max} characters at most.", b.Say("en", "too_long", nil))
	require.Equal(t, "I do not know {flag} {flag}. I know --ar, --size, -n, --steps, --seed, --no, --model, --strength and --file.",
		b.Say("en", "flag_unknown", With{"flag": "{flag} {flag}"}), "what a person wrote is not filled in again")
}
