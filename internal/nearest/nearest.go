// Package nearest guesses which known word somebody has misspelt.
package nearest

import "strings"

// maxWord bounds the words that are compared, in bytes: the cost grows with the square.
const maxWord = 64

// Of returns the known word that is most like another one, or "" if none is much like it. Of several it
// returns the first. Upper and lower case are alike.
func Of(word string, known []string) string {
	best, least := "", max(2, len(word)/3)+1
	for _, k := range known {
		if len(k) > maxWord || len(word) > maxWord {
			continue
		}
		if d := Distance([]rune(strings.ToLower(word)), []rune(strings.ToLower(k))); d < least && d < len(k) {
			best, least = k, d
		}
	}
	return best
}

// Distance is how many letters must be added, left out, changed, or exchanged with the next one. It takes
// time for each pair of letters.
func Distance(a, b []rune) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
