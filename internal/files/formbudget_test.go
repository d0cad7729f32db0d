package files

import (
	"io"
	"net/http"
	"net/http/httptest"
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
	field := "--b\r\nContent-Disposition: form-data; name=\"x%\"\r\n\r\n" + strings.Repeat("x", 256<<10) + "\r\n"
	file := "--b\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\n" + strings.Repeat("x", 4<<20) + "\r\n--b--\r\n"
	for name, body := range map[string]string{
		"fields": strings.ReplaceAll(field, "%", "1") + strings.ReplaceAll(field, "%", "2") + strings.ReplaceAll(field, "%", "3"),
		"a file": file,
	} {
		b := budget.New()
		b.Resize(budget.Memory, 1<<20, 1, nil)
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
