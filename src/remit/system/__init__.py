"""What remit asks of the operating system: process trees and their killing, locks, atomic files. Knows no delegation."""
