package telegram

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-telegram/bot"

	"github.com/comfyhub/comfyhub/botbridge/internal/platform"
)

// attempt is what was observed of one call on the wire. The library's error alone
// does not tell a call that was never sent from one that took effect.
type attempt struct {
	// wrote means that the whole request was sent.
	wrote  atomic.Bool
	status atomic.Int32
	// source is set when a file to send could not be read.
	source atomic.Bool
}

type attemptKey struct{}

func observed(ctx context.Context) (context.Context, *attempt) {
	a := &attempt{}
	return context.WithValue(ctx, attemptKey{}, a), a
}

// observer is the library's HTTP client.
type observer struct{ client *http.Client }

func (o observer) Do(r *http.Request) (*http.Response, error) {
	a, _ := r.Context().Value(attemptKey{}).(*attempt)
	if a != nil {
		trace := &httptrace.ClientTrace{WroteRequest: func(info httptrace.WroteRequestInfo) {
			if info.Err == nil {
				a.wrote.Store(true)
			}
		}}
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), trace))
	}
	response, err := o.client.Do(r)
	if a != nil && response != nil {
		a.status.Store(int32(response.StatusCode))
	}
	return response, err
}

// explain interprets an error of the library.
func (a *attempt) explain(err error) error {
	var wait *bot.TooManyRequestsError
	var moved *bot.MigrateError
	switch status := a.status.Load(); {
	case err == nil:
		return nil
	case errors.As(err, &wait):
		return &platform.WaitError{After: time.Duration(wait.RetryAfter) * time.Second}
	case errors.As(err, &moved):
		return &platform.MovedError{To: fmt.Sprint(moved.MigrateToChatID)}
	case errors.Is(err, bot.ErrorForbidden):
		return fmt.Errorf("%w: %w", platform.ErrForbidden, err)
	case errors.Is(err, bot.ErrorBadRequest):
		return badRequest(err)
	case a.source.Load():
		return fmt.Errorf("%w: %w", platform.ErrSource, hide(err))
	case status == http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: %w", platform.ErrTooLarge, err)
	case status == 0 && !a.wrote.Load():
		return fmt.Errorf("telegram cannot be reached: %w", hide(err))
	case status == 0, status == http.StatusOK:
		// Sent completely, but no readable answer.
		return fmt.Errorf("%w: %w", platform.ErrUncertain, hide(err))
	case strings.Contains(err.Error(), "error response from telegram"):
		// Telegram itself has reported the failure.
		return fmt.Errorf("telegram failed: %w", err)
	case status >= http.StatusInternalServerError:
		// Something between us and Telegram failed: it may have forwarded the call.
		return fmt.Errorf("%w: status %d", platform.ErrUncertain, status)
	}
	return hide(err)
}

// badRequest classifies Telegram's status 400 by its text, which is all there is.
func badRequest(err error) error {
	text := strings.ToLower(err.Error())
	has := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(text, part) {
				return true
			}
		}
		return false
	}
	switch {
	case has("message is not modified"):
		return nil
	case has("message to edit not found", "message to delete not found", "message_id_invalid", "can't be edited"):
		return fmt.Errorf("%w: %w", platform.ErrGone, err)
	case has("rights to send photos", "rights to send videos", "rights to send audios", "rights to send documents", "rights to send animations",
		"rights to send media", "photos_forbidden", "videos_forbidden", "audios_forbidden", "docs_forbidden", "gifs_forbidden", "media_forbidden"):
		return fmt.Errorf("%w: %w", platform.ErrNoMedia, err)
	case has("chat not found", "user is deactivated", "not enough rights", "have no rights", "chat_write_forbidden", "chat_send_plain_forbidden",
		"chat_restricted", "message thread not found", "topic_closed", "topic_deleted"):
		return fmt.Errorf("%w: %w", platform.ErrForbidden, err)
	case has("too big", "too large"):
		return fmt.Errorf("%w: %w", platform.ErrTooLarge, err)
	}
	return fmt.Errorf("%w: %w", platform.ErrRefused, err)
}

// hide removes the URL from an error: it contains the token.
func hide(err error) error {
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	return err
}
