package api

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// An instance that answers for a file with an error that never ends is not read to its end.
func TestErrorsAreBounded(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	tell := func(status int, answer []byte) *pyjson.Object {
		text, _ := ErrorText(status, nil, answer)
		return pyjson.NewObject(pyjson.Member{Key: "told", Value: pyjson.String(text)})
	}
	Translating(tell, func(w http.ResponseWriter, _ *http.Request, _ Requester, _ []string) {
		w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
		_, err := io.Copy(w, bytes.NewReader(make([]byte, maxHeld+1)))
		require.ErrorIs(t, err, errHeld)
	})(w, nil, Requester{}, nil)
	require.Equal(t, http.StatusRequestedRangeNotSatisfiable, w.Code)
	require.JSONEq(t, `{"told": "Requested Range Not Satisfiable"}`, w.Body.String())
}
