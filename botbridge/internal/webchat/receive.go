package webchat

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

const (
	timestampHeader = "X-Bridge-Timestamp"
	signatureHeader = "X-Bridge-Signature"
	// maxBody bounds a message, in bytes.
	maxBody = 256 << 10
	// maxSkew is the maximum difference between the clocks of both sides.
	maxSkew = 5 * time.Minute
)

// Heard is the body of POST /bridge/messages: a message, or a pressed button. ID,
// Chat and User are required.
type Heard struct {
	// ID is unique; a message that arrives twice is handled once.
	ID       string `json:"id"`
	Chat     string `json:"chat"`
	Group    bool   `json:"group"`
	User     string `json:"user"`
	Name     string `json:"name"`
	Language string `json:"language"`
	// Message is the sender's id of the message; default: ID. With a button it is
	// the bridge's message that contains the button.
	Message string         `json:"message"`
	Edited  bool           `json:"edited"`
	Text    string         `json:"text"`
	Files   []HeardFile    `json:"files"`
	ReplyTo *HeardReplied  `json:"reply_to"`
	Press   *HeardPressing `json:"press"`
}

// HeardFile is a file that somebody sent, by its URL.
type HeardFile struct {
	URL  string `json:"url"`
	Name string `json:"name"`
	Type string `json:"type"`
}

// HeardReplied is the message that a message answers.
type HeardReplied struct {
	Message string      `json:"message"`
	Files   []HeardFile `json:"files"`
}

// HeardPressing is a button that was pressed; ID is what is answered.
type HeardPressing struct {
	ID   string `json:"id"`
	Data string `json:"data"`
}

// Sign returns the signature of a body.
func Sign(secret, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(timestamp + "."))
	mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// Verify reports whether a signature is valid and not too old.
func Verify(secret string, header http.Header, body []byte, now time.Time) bool {
	timestamp := header.Get(timestampHeader)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > maxSkew {
		return false
	}
	return hmac.Equal([]byte(header.Get(signatureHeader)), []byte(Sign(secret, timestamp, body)))
}

// Routes implements platform.Platform.
func (w *Webchat) Routes(admit platform.Admit) map[string]http.Handler {
	return map[string]http.Handler{"POST " + Path: w.receive(admit)}
}

// receive handles a message. 202 means that it is stored; 503 asks the sender to
// repeat it.
func (w *Webchat) receive(admit platform.Admit) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(rw, r.Body, maxBody))
		if err != nil {
			http.Error(rw, "too large", http.StatusRequestEntityTooLarge)
			return
		}
		if !Verify(w.o.Secret, r.Header, body, time.Now()) {
			http.Error(rw, "wrong signature", http.StatusUnauthorized)
			return
		}
		var heard Heard
		if err := json.Unmarshal(body, &heard); err != nil || heard.ID == "" || heard.Chat == "" || heard.User == "" {
			http.Error(rw, "not a message: id, chat and user are needed", http.StatusBadRequest)
			return
		}
		if err := admit(r.Context(), heard.event(time.Now())); err != nil {
			rw.Header().Set("Retry-After", "5")
			http.Error(rw, "try again", http.StatusServiceUnavailable)
			return
		}
		rw.WriteHeader(http.StatusAccepted)
	})
}

func (h Heard) event(now time.Time) platform.Event {
	e := platform.Event{
		ID: h.ID, Platform: Name, Kind: platform.Said, At: now,
		Chat:    platform.Chat{ID: h.Chat, Group: h.Group},
		User:    platform.User{ID: h.User, Name: h.Name, Language: h.Language},
		Message: platform.Message{ID: h.Message, Text: h.Text, Files: files(h.Files)},
	}
	e.Message.ID = cmp.Or(e.Message.ID, h.ID)
	if h.Edited {
		e.Kind = platform.Edited
	}
	if h.ReplyTo != nil {
		e.Message.ReplyTo = &platform.Message{ID: h.ReplyTo.Message, Files: files(h.ReplyTo.Files)}
	}
	if h.Press != nil {
		e.Kind, e.Press, e.Data = platform.Pressed, h.Press.ID, h.Press.Data
	}
	return e
}

func files(list []HeardFile) (out []platform.File) {
	for _, f := range list {
		out = append(out, platform.File{ID: f.URL, Name: f.Name, Type: f.Type})
	}
	return out
}
