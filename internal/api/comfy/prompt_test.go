package comfy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

func TestTakesNumber(t *testing.T) {
	t.Parallel()
	for body, takes := range map[string]bool{
		`{}`: true, `{"prompt": 1}`: true, `{"number": null}`: false, `{"number": 3}`: false,
		`[]`: true, `["number"]`: false, `[[]]`: true, `"prompt"`: true, `"a number"`: false,
		`null`: false, `5`: false, `{`: false, ``: false,
	} {
		v, _ := pyjson.Parse([]byte(body)) // what is no JSON is no value
		require.Equal(t, takes, takesNumber(v), body)
	}
}
