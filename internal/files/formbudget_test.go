package files

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/redis/redistest"
)

// Every byte of a form is counted before it is kept, and comes back: fields in memory,
// files on disk.
func TestFormsAreCounted(t *testing.T) {
	t.Parallel()
	u := newUploads(t, newStore(t, redistest.Embedded(t)), newInstance(), 8<<20)
	field := "--b\r\nContent-Disposition: form-data; name=\"%\"\r\n\r\n" + strings.Repeat("x", maxField) + "\r\n"
	file := "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\n" + strings.Repeat("x", 4<<20) + "\r\n--b--\r\n"
	for name, body := range map[string]string{
		"fields": strings.ReplaceAll(field, "%", "subfolder") + strings.ReplaceAll(field, "%", "overwrite"),
		"a file": file,
	} {
		b := budget.New()
		b.Resize(budget.Memory, 3*maxField, 1, nil)
		b.Resize(budget.Disk, 1<<20, 1, nil)
		held := b.Open("ann", nil)
		r := httptest.NewRequestWithContext(budget.With(t.Context(), held), http.MethodPost, "/upload/image", strings.NewReader(body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		w := httptest.NewRecorder()
		require.NoError(t, u.ServeImage(w, r, tenant))
		require.Equal(t, http.StatusServiceUnavailable, w.Code, name)
		require.Zero(t, b.Used(budget.Memory), name)
		require.Zero(t, b.Used(budget.Disk), name)
	}
	parts := budget.NewParts(strings.NewReader("--b\r\nX: "+strings.Repeat("x", 1<<20)), "b")
	_, err := parts.Next()
	require.Error(t, err)
	require.NotErrorIs(t, err, io.EOF, "the header of a part is bounded")
}

// Of fields that mean nothing neither text nor name is kept, and they must be as text is.
func TestFieldsThatDoNotCount(t *testing.T) {
	u := newUploads(t, newStore(t, redistest.Embedded(t)), newInstance(), 8<<20)
	field := func(name, text string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + text + "\r\n"
	}
	file := "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\r\n\r\nx\r\n--b--\r\n"
	many := ""
	for n := range 500 {
		many += field(strings.Repeat("n", 2<<10)+strconv.Itoa(n), strings.Repeat("ü", 2<<10))
	}
	type row struct {
		body   string
		status int
	}
	sideBySide(t, map[string]row{
		"many":              {many + file, http.StatusOK},
		"the longest":       {field("x", strings.Repeat("x", maxOther)) + file, http.StatusOK},
		"too long":          {field("x", strings.Repeat("x", maxOther+1)) + file, http.StatusRequestEntityTooLarge},
		"no text":           {field("x", "a\xffb") + file, http.StatusInternalServerError},
		"half a character":  {field("x", "a\xc3") + file, http.StatusInternalServerError},
		"one that is split": {field("x", strings.Repeat("€", 100_000)) + file, http.StatusOK},
	}, func(t *testing.T, c row) {
		b := budget.New()
		b.Resize(budget.Memory, 16<<10, 1, nil)
		b.Resize(budget.Disk, 1<<20, 1, nil)
		r := httptest.NewRequestWithContext(budget.With(t.Context(), b.Open("ann", nil)), http.MethodPost, "/upload/image", strings.NewReader(c.body))
		r.Header.Set("Content-Type", "multipart/form-data; boundary=b")
		w := httptest.NewRecorder()
		require.NoError(t, u.ServeImage(w, r, tenant))
		require.Equal(t, c.status, w.Code, w.Body.String())
	})
}
