package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/text/encoding/unicode"

	"github.com/comfyhub/comfyhub/internal/intake"
)

// aiohttp reads a JSON body in the charset that its Content-Type names.
func TestCharsetsOfBodies(t *testing.T) {
	t.Parallel()
	q := &Requests{Intake: intake.New(intake.Options{Dir: t.TempDir()})}
	const text = `{"theme": "grün"}`
	wide := func(e unicode.Endianness, mark unicode.BOMPolicy) string {
		out, err := unicode.UTF16(e, mark).NewEncoder().String(text)
		require.NoError(t, err)
		return out
	}
	latin := strings.ReplaceAll(text, "ü", "\xfc")
	for n, c := range []struct {
		kind, body string
		reads      bool
	}{
		{"application/json", text, true},
		{"application/json; charset=utf-8", text, true},
		{"application/json; charset=UTF8", text, true},
		{"application/json; charset=utf-16", wide(unicode.LittleEndian, unicode.UseBOM), true},
		{"application/json; charset=\"UTF-16\"", wide(unicode.BigEndian, unicode.UseBOM), true},
		{"application/json; charset=utf-16", wide(unicode.LittleEndian, unicode.IgnoreBOM), true},
		{"application/json; charset=utf-16be", wide(unicode.BigEndian, unicode.IgnoreBOM), true},
		{"application/json; charset=utf-16-le", wide(unicode.LittleEndian, unicode.IgnoreBOM), true},
		{"text/plain; charset=latin-1", latin, true},
		{"application/json; charset=iso-8859-1", latin, true},
		{"application/json; charset=windows-1252", latin, true},
		{"application/json; charset=utf-8-sig", "\ufeff" + text, true},
		{"application/json; charset=utf-16", text, false},
		{"application/json; charset=ascii", latin, false},
		{"application/json; charset=none-such", text, false},
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/settings", http.NoBody)
		r.Header.Set("Content-Type", c.kind)
		got, err := q.decoded(r, "ann", intake.Class{Limit: 1 << 20, Values: 10}, []byte(c.body))
		require.Equal(t, c.reads, err == nil && string(got) == text, "%d: %s: %q", n, c.kind, got)
	}
}
