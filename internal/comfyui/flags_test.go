package comfyui_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/comfyui"
)

func announced(data string) comfyui.Frame {
	return comfyui.Frame{Data: []byte(`{"type": "feature_flags", "data": ` + data + `}`)}
}

func TestParseFlags(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"a": `, 5000) + `true` + strings.Repeat(`}`, 5000)
	for _, tt := range []struct {
		data string
		want comfyui.Flags
	}{
		{
			`{"supports_preview_metadata": true, "supports_model_type_tags": true, "max_upload_size": 104857600, "extension": {"manager": {"supports_v4": true}}, "node_replacements": true, "assets": true}`,
			comfyui.Flags{"supports_model_type_tags": true, "extension.manager.supports_v4": true, "node_replacements": true, "assets": true},
		},
		{
			`{"show_signin_button": true, "partner_run_gate_enabled": false, "enable_telemetry": "yes"}`,
			comfyui.Flags{"show_signin_button": true, "partner_run_gate_enabled": false, "enable_telemetry": false},
		},
		{`{"supports_telepathy": true, "model_upload_button_enabled": true, "comfy_api_base_url": "https://evil.example"}`, comfyui.Flags{}},
		{`{"extension": {"a": {"b": {"c": {"d": true}, "e": true}}, "x.y": true, "url": "https://evil.example", "n": 1}}`, comfyui.Flags{"extension.a.b.e": true}},
		{`{"extension": true}`, comfyui.Flags{}},
		{`[1]`, comfyui.Flags{}},
	} {
		flags, ok := comfyui.ParseFlags(announced(tt.data))
		require.True(t, ok, tt.data)
		require.Equal(t, tt.want, flags, tt.data)
	}
	for _, data := range []string{`{"extension": ` + deep + `}`, `{"a": "` + strings.Repeat("x", 20<<10) + `"}`, `{`} {
		_, ok := comfyui.ParseFlags(announced(data))
		require.False(t, ok)
	}
	_, ok := comfyui.ParseFlags(comfyui.Frame{Data: []byte(`{"type": "status", "data": {"feature_flags": 1}}`)})
	require.False(t, ok)
	var many strings.Builder
	for i := range 200 {
		many.WriteString(`"` + strings.Repeat("n", 1+i%90) + strconv.Itoa(i) + `": true, `)
	}
	flags, ok := comfyui.ParseFlags(announced(`{"extension": {` + many.String() + `"a": true}}`))
	require.True(t, ok)
	require.LessOrEqual(t, len(flags), 64)
}

func TestAgreedFlags(t *testing.T) {
	t.Parallel()
	one := comfyui.Flags{"show_signin_button": true, "partner_run_gate_enabled": true, "assets": true, "extension.a.b": true}
	other := comfyui.Flags{"show_signin_button": true, "partner_run_gate_enabled": false, "assets": false}
	require.Equal(t, one, comfyui.AgreedFlags([]comfyui.Flags{one}))
	require.Equal(t, comfyui.Flags{"show_signin_button": true, "assets": true}, comfyui.AgreedFlags([]comfyui.Flags{one, other}))
	require.Empty(t, comfyui.AgreedFlags([]comfyui.Flags{one, nil}), "an older one announces nothing")
	require.Empty(t, comfyui.AgreedFlags(nil))
	require.Len(t, one, 4)
}

func FuzzParseFlags(f *testing.F) {
	f.Add([]byte(`{"type": "feature_flags", "data": {"extension": {"a": {"b": true}}, "assets": 1}}`))
	f.Fuzz(func(t *testing.T, frame []byte) {
		flags, _ := comfyui.ParseFlags(comfyui.Frame{Data: frame})
		if len(flags) > 128 {
			t.Fatal(len(flags))
		}
		for name := range flags {
			if len(name) > 5*65+9 {
				t.Fatal(name)
			}
		}
	})
}
