package files

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/budget"
	"github.com/comfyhub/comfyhub/internal/picture"
	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/redis"
)

// answer sends a whole body with its length.
func answer(w http.ResponseWriter, status int, contentType string, body []byte) {
	if contentType != "" {
		w.Header().Set("Content-Type", contentType)
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone, which is its own business
}

// answerEmpty sends a bare status without Content-Type, as ComfyUI does.
func answerEmpty(w http.ResponseWriter, status int) { answer(w, status, "", nil) }

// Trouble is the body of ComfyUI's answer when one of its handlers fails, and the body's type:
// aiohttp writes HTML for those who accept it.
func Trouble(r *http.Request) (contentType string, body []byte) {
	if strings.Contains(r.Header.Get("Accept"), "text/html") {
		return "text/html; charset=utf-8", []byte("<html><head><title>500 Internal Server Error</title></head><body>\n" +
			"<h1>500 Internal Server Error</h1>\nServer got itself in trouble\n</body></html>\n")
	}
	return "text/plain; charset=utf-8", []byte("500 Internal Server Error\n\nServer got itself in trouble")
}

func answerTrouble(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Connection", "close")
	contentType, body := Trouble(r)
	answer(w, http.StatusInternalServerError, contentType, body)
}

// answerError answers with what went wrong. Errors that ComfyUI has keep its form; those that only
// a hub can have are JSON in the form of a refused prompt. away is called if it was Redis; it may
// be nil.
func answerError(w http.ResponseWriter, r *http.Request, err error, log *slog.Logger, away func()) {
	var refused *StatusError
	switch {
	case errors.As(err, &refused) && refused.Status != http.StatusInternalServerError:
		answerEmpty(w, refused.Status)
	case refused != nil:
		answerTrouble(w, r)
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrGone), errors.Is(err, ErrChanged):
		answerEmpty(w, http.StatusNotFound)
	case errors.Is(err, context.Canceled) && r.Context().Err() != nil:
		// The client is gone.
	case errors.Is(err, budget.ErrFull):
		w.Header().Set("Connection", "close")
		w.Header().Set("Retry-After", "2")
		answerHub(w, http.StatusServiceUnavailable, "busy", "Too much is arriving at the hub at once; try again")
	case errors.Is(err, picture.ErrBusy):
		w.Header().Set("Retry-After", "2")
		answerHub(w, http.StatusServiceUnavailable, "too_many_pictures", "Too many pictures are being made; try again")
	case errors.Is(err, redis.ErrUnavailable):
		if away != nil {
			away()
		}
		w.Header().Set("Retry-After", "2")
		answerHub(w, http.StatusServiceUnavailable, "hub_unavailable", "The queue cannot be reached now")
	case errors.Is(err, ErrStorage):
		log.Error("the storage failed a request", "error", err)
		w.Header().Set("Retry-After", "10")
		answerHub(w, http.StatusServiceUnavailable, "storage_unavailable", "The hub's storage does not work now")
	case errors.Is(err, ErrInstance):
		log.Warn("cannot get a file from the instance", "error", err)
		answerHub(w, http.StatusBadGateway, "instance_unavailable", "The instance that has the file does not answer")
	default:
		log.Error("file request failed", "error", err)
		answerTrouble(w, r)
	}
}

func answerHub(w http.ResponseWriter, status int, typ, message string) {
	body := `{"error": {"type": ` + quote(typ) + `, "message": ` + quote(message) +
		`, "details": "", "extra_info": {}}, "node_errors": {}}`
	answer(w, status, "application/json; charset=utf-8", []byte(body))
}

func quote(s string) string { return string(pyjson.AppendString(nil, s)) }
