package system

import (
	"context"
	"io"
	"net/http"
	"strings"

	"github.com/stretchr/testify/require"
)

// Call makes a request to a hub from a machine of its own, and waits for the answer as long
// as clients do. Status 0 means that none came.
func (h *Hub) Call(method, path, body string) (status int, answer []byte) {
	ctx, cancel := context.WithTimeout(h.w.ended, patience)
	defer cancel()
	client := h.w.HTTP("observer")
	defer client.CloseIdleConnections()
	r, err := http.NewRequestWithContext(ctx, method, h.URL()+path, strings.NewReader(body))
	require.NoError(h.w.t, err)
	resp, err := client.Do(r)
	if err != nil {
		return 0, nil
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil
	}
	return resp.StatusCode, answer
}
