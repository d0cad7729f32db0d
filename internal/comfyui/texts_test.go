package comfyui

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	for outputs, want := range map[string][]string{
		`{"9": {"text": ["a red fox"]}}`:                                                                    {"a red fox"},
		`{"9": {"tags": ["fox", " snow "]}, "8": {"text": "fox"}}`:                                          {"fox", "snow"},
		`{"9": {"images": [{"filename": "a.png", "subfolder": "", "type": "output"}], "animated": [true]}}`: nil,
		`{"9": {"text": [1.5, NaN]}, "8": {"text": [["x"]]}, "7": {"text": [""]}}`:                          nil,
		`{"9": {"picture": ["data:image/png;base64,AAAA"]}}`:                                                nil,
		`{"9": {"text": ["\u043b\u0438\u0441\u0430"]}}`:                                                     {"лиса"},
		``: nil, `[]`: nil,
	} {
		require.Equal(t, want, Texts([]byte(outputs), 20), outputs)
	}
	var many strings.Builder
	for i := range 50 {
		fmt.Fprintf(&many, `"%d",`, i)
	}
	require.Len(t, Texts([]byte(`{"9": {"text": [`+strings.TrimSuffix(many.String(), ",")+`]}}`), 20), 20)
}
