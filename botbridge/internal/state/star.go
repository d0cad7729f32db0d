package state

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/comfyhub/comfyhub/internal/redis"
)

var (
	starScript   = script("star", redis.Durable)
	forgetScript = script("forget", redis.Durable)
)

const (
	// MaxStars is how many favourites a user has: the oldest falls out.
	MaxStars = 200
	// starKeep is how long the favourites of a user who adds none are kept, with their
	// requests.
	starKeep = 365 * 24 * time.Hour
	// starWords bounds the words of a favourite, in characters.
	starWords = 500
	// starLast is how long the last change of a user is known, so that an event that is
	// handled twice changes nothing twice.
	starLast = time.Hour
)

// Star is a picture that a user has marked as a favourite. Older and newer bridges read
// its JSON.
type Star struct {
	// Request made it, and Picture is its index among the outputs. The request is kept for
	// as long as anybody's star for it.
	Request string `json:"request"`
	Picture int    `json:"picture,omitempty"`
	Command string `json:"command"`
	// Words are those of the prompt, shortened to 500 characters.
	Words string    `json:"words,omitempty"`
	At    time.Time `json:"at"`
	// Chat, Topic and Message are where the platform shows it; Media is the platform's own
	// name for the file, "" if it gave none.
	Chat    string `json:"chat"`
	Topic   string `json:"topic,omitempty"`
	Group   bool   `json:"group,omitempty"`
	Message string `json:"message,omitempty"`
	Media   string `json:"media,omitempty"`
}

// ID names the star among those of its user.
func (s Star) ID() string { return fmt.Sprintf("%s/%d", s.Request, s.Picture) }

// Toggle adds a picture to a user's favourites or removes it, and reports which. Handling
// the same event again does not undo it.
func (s *People) Toggle(ctx context.Context, who, event string, star Star) (starred bool, err error) {
	if runes := []rune(star.Words); len(runes) > starWords {
		star.Words = string(runes[:starWords])
	}
	doc, err := json.Marshal(star)
	if err != nil {
		return false, err
	}
	reply, err := s.run(ctx, starScript, s.term.load(), who, star.ID(), doc, event, star.Request, MaxStars, starKeep.Milliseconds(),
		s.o.Keep.Milliseconds(), starLast.Milliseconds())
	if err != nil {
		return false, err
	}
	return reply[1] == "1", nil
}

// Stars returns a user's favourites whose command or words contain a text, whatever its
// case; "" is for all. The newest come first.
func (s *People) Stars(ctx context.Context, who, search string) ([]Star, error) {
	ids, err := s.db.Client().ZRange(ctx, s.db.Key("star_order", who), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("listing favourites: %w", err)
	}
	docs, err := s.db.Client().HGetAll(ctx, s.db.Key("stars", who)).Result()
	if err != nil {
		return nil, fmt.Errorf("listing favourites: %w", err)
	}
	search = strings.ToLower(strings.TrimSpace(search))
	var list []Star
	for _, id := range slices.Backward(ids) {
		var star Star
		if doc := docs[id]; doc == "" || json.Unmarshal([]byte(doc), &star) != nil {
			continue
		}
		if strings.Contains(strings.ToLower(star.Command+" "+star.Words), search) {
			list = append(list, star)
		}
	}
	return list, nil
}

// Forget removes a request that is over, and its pictures from everybody's favourites. It
// returns false for one that is not over. One that is not there is forgotten already.
func (s *Requests) Forget(ctx context.Context, id string) (bool, error) {
	reply, err := s.run(ctx, forgetScript, s.term.load(), id)
	if err != nil {
		return false, err
	}
	return reply[0] == "ok", nil
}
