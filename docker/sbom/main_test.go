package main

import (
	"bytes"
	"encoding/json"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBill(t *testing.T) {
	t.Parallel()
	info := &debug.BuildInfo{
		GoVersion: "go1.26.1", Path: "example.com/x/agent", Main: debug.Module{Path: "example.com/x", Version: "v1.2.3"},
		Deps: []*debug.Module{
			{Path: "example.com/a", Version: "v1.0.0", Sum: "h1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="},
			{Path: "example.com/b", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/c", Version: "v2.0.0"}},
		},
	}
	var out bytes.Buffer
	require.NoError(t, write(&out, "agent", info))
	var b bill
	require.NoError(t, json.Unmarshal(out.Bytes(), &b))
	require.Equal(t, "CycloneDX", b.Format)
	require.Equal(t, component{Type: "application", Ref: "example.com/x/agent", Name: "agent", Version: "v1.2.3"}, b.Metadata.Component)
	require.Equal(t, []component{
		{Type: "library", Ref: "std@1.26.1", Name: "std", Version: "1.26.1", PURL: "pkg:golang/std@1.26.1"},
		{
			Type: "library", Ref: "example.com/a@v1.0.0", Name: "example.com/a", Version: "v1.0.0", PURL: "pkg:golang/example.com/a@v1.0.0",
			Hashes: []hash{{"SHA-256", "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"}},
		},
		{Type: "library", Ref: "example.com/c@v2.0.0", Name: "example.com/c", Version: "v2.0.0", PURL: "pkg:golang/example.com/c@v2.0.0"},
	}, b.Components)
	info.Deps[0].Sum = "h1:%"
	require.Error(t, write(&out, "agent", info))
}
